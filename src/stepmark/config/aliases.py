"""The names that people type by habit, and what they are called here: one table for all peers.

The columns speak of TRL 1.16, verl 0.10, OpenRLHF (August 2026) and lm-evaluation-harness. Errors
and ``stepmark config aliases`` read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ALIASES", "PEERS", "RENAMED", "Alias", "alias_hint"]

PEERS = ("TRL", "verl", "OpenRLHF", "lm-eval")
"""The columns of the table."""


RENAMED = {"reward.refresh.labels": "reward.refresh.annotator"}
"""Our own earlier names of settings -> what they are called now; files with them are still read."""


class Alias(NamedTuple):
    """One setting, and its names elsewhere; the first name of a tuple is the peer's current one."""

    key: str
    """Dotted key of ours, or a flag where the setting belongs to a verb."""
    trl: tuple[str, ...] = ()
    verl: tuple[str, ...] = ()
    openrlhf: tuple[str, ...] = ()
    lm_eval: tuple[str, ...] = ()
    note: str = ""
    """What differs besides the name."""

    def names(self) -> dict[str, tuple[str, ...]]:
        """Peer -> its names for the setting."""
        return dict(zip(PEERS, (self.trl, self.verl, self.openrlhf, self.lm_eval), strict=True))


TABLE: tuple[Alias, ...] = (
    Alias(
        "model.policy",
        ("model_name_or_path", "model"),
        ("model.path",),
        ("pretrain",),
        ("pretrained", "model_args"),
    ),
    Alias(
        "model.dtype",
        ("dtype", "torch_dtype", "bf16"),
        ("model_dtype",),
        ("param_dtype",),
        ("dtype",),
    ),
    Alias(
        "model.gradient_checkpointing",
        ("gradient_checkpointing",),
        ("enable_gradient_checkpointing",),
        ("gradient_checkpointing",),
    ),
    Alias("model.peft", ("use_peft", "peft_config"), (), (), ("peft",), '"lora", or a table'),
    Alias("model.peft.rank", ("lora_r", "r"), ("lora_rank",), ("lora_rank",)),
    Alias("model.peft.alpha", ("lora_alpha",), ("lora_alpha",), ("lora_alpha",)),
    Alias("model.peft.dropout", ("lora_dropout",), (), ("lora_dropout",), note="only 0"),
    Alias(
        "model.peft.target_modules",
        ("lora_target_modules",),
        ("target_modules",),
        ("target_modules",),
    ),
    Alias("data.task", (), (), (), ("tasks",), "a list of tasks may carry data.weights"),
    Alias(
        "data.dataset",
        ("dataset_name",),
        ("train_files",),
        ("prompt_data",),
        ("dataset_path",),
        "PATH_OR_HUB[:split]",
    ),
    Alias("data.split", ("dataset_train_split",), (), ("prompt_split",), ("training_split",)),
    Alias("data.prompt_column", (), ("prompt_key",), ("input_key",), ("doc_to_text",)),
    Alias("data.gold_column", (), ("reward_fn_key",), ("label_key",), ("doc_to_target",)),
    Alias(
        "data.prompt",
        ("chat_template_path",),
        ("custom_chat_template",),
        ("input_template", "apply_chat_template"),
        ("apply_chat_template",),
        "a prompt template by name",
    ),
    Alias("data.eval_task", ("eval_dataset",), ("val_files",), ("eval_dataset",)),
    Alias("data.eval_limit", (), ("val_max_samples",), ("max_samples",), ("limit",)),
    Alias("rollout.engine", ("use_vllm", "vllm_mode"), ("rollout.name",), ("vllm_num_engines",)),
    Alias(
        "rollout.group_size",
        ("num_generations",),
        ("rollout.n",),
        ("n_samples_per_prompt",),
        ("repeats",),
    ),
    Alias(
        "rollout.prompts_per_step",
        ("generation_batch_size", "per_device_train_batch_size"),
        ("train_batch_size",),
        ("rollout_batch_size",),
        note="problems, each with group_size completions; TRL counts completions",
    ),
    Alias(
        "rollout.temperature",
        ("temperature",),
        ("temperature",),
        ("temperature",),
        ("temperature",),
    ),
    Alias(
        "rollout.max_tokens",
        ("max_completion_length", "max_new_tokens"),
        ("max_response_length", "response_length"),
        ("generate_max_len", "max_new_tokens"),
        ("max_gen_toks",),
    ),
    Alias("rollout.seed", ("seed",), ("data.seed",), ("seed",), ("seed",)),
    Alias(
        "reward.verifiers",
        ("reward_funcs", "reward_function"),
        ("custom_reward_function", "reward_manager"),
        ("remote_rm_url", "reward_func"),
        note='[{name = "math", weight = 1.0}]',
    ),
    Alias("algorithm.backend", (), ("adv_estimator",), ("advantage_estimator",)),
    Alias(
        "algorithm.steps",
        ("max_steps",),
        ("total_training_steps",),
        ("num_episodes",),
        note="not epochs",
    ),
    Alias("algorithm.mu", ("num_iterations",), ("ppo_epochs",), ("max_epochs",)),
    Alias(
        "algorithm.minibatches",
        ("steps_per_generation",),
        ("ppo_mini_batch_size",),
        ("train_batch_size",),
        note="a count of minibatches per epoch, not their size",
    ),
    Alias(
        "algorithm.learning_rate",
        ("learning_rate",),
        ("lr",),
        ("actor_learning_rate", "learning_rate"),
    ),
    Alias(
        "algorithm.beta",
        ("beta", "kl_coef"),
        ("kl_loss_coef", "kl_coef"),
        ("init_kl_coef",),
        note="KL in the loss, k3 estimator",
    ),
    Alias(
        "algorithm.clip_low",
        ("epsilon", "cliprange"),
        ("clip_ratio", "clip_ratio_low"),
        ("eps_clip",),
        note="clip_high is the other side",
    ),
    Alias("algorithm.clip_high", ("epsilon_high",), ("clip_ratio_high",), ("eps_clip_low_high",)),
    Alias("algorithm.aggregation", ("loss_type",), ("loss_agg_mode",), ("loss_agg_mode",)),
    Alias(
        "algorithm.loss",
        ("loss_type",),
        note='of preferences; TRL\'s "ipo" is "ipo-mean", per token',
    ),
    Alias("algorithm.label_smoothing", ("label_smoothing",), (), ("label_smoothing",)),
    Alias("algorithm.gae_lambda", ("lam",), ("lam",), ("lambd",)),
    Alias("algorithm.gamma", ("gamma",), ("gamma",), ("gamma",)),
    Alias("algorithm.whiten", ("whiten_rewards",), (), (), note="advantages, never rewards"),
    Alias("algorithm.value_clip", ("cliprange_value",), ("cliprange_value",), ("value_clip",)),
    Alias("algorithm.value_weight", ("vf_coef",), note="only where the critic shares the body"),
    Alias("algorithm.entropy_weight", (), ("entropy_coeff",), ("entropy_loss_coef",)),
    Alias("algorithm.critic_learning_rate", (), ("critic.optim.lr",), ("critic_learning_rate",)),
    Alias("algorithm.critic_warmup_steps", (), ("critic_warmup",), ("freezing_actor_steps",)),
    Alias("algorithm.scale", ("scale_rewards",), ("norm_adv_by_std_in_grpo",)),
    Alias(
        "algorithm.warmup_steps",
        ("warmup_steps", "warmup_ratio"),
        ("lr_warmup_steps",),
        ("lr_warmup_ratio",),
    ),
    Alias(
        "algorithm.schedule",
        ("lr_scheduler_type",),
        ("warmup_style", "lr_scheduler_type"),
        ("lr_scheduler",),
    ),
    Alias(
        "algorithm.tokens_per_microbatch",
        ("max_tokens_per_batch",),
        ("ppo_max_token_len_per_gpu", "ppo_micro_batch_size_per_gpu"),
        ("train_max_tokens_per_gpu", "micro_train_batch_size"),
        note="prompt and completion tokens, not rows",
    ),
    Alias(
        "algorithm.grad_clip",
        ("max_grad_norm",),
        ("grad_clip", "clip_grad"),
        ("max_norm",),
    ),
    Alias("algorithm.trackers", ("report_to",), ("trainer.logger",), ("use_wandb",)),
    Alias("algorithm.eval_every", ("eval_steps",), ("test_freq",), ("eval_steps",)),
    Alias("algorithm.save_every", ("save_steps",), ("save_freq",), ("save_steps",)),
    Alias(
        "algorithm.keep_checkpoints",
        ("save_total_limit",),
        ("max_actor_ckpt_to_keep",),
        ("max_ckpt_num",),
    ),
    Alias(
        "eval run --prompt",
        (),
        (),
        (),
        ("num_fewshot",),
        "shots are part of a prompt template",
    ),
    Alias("eval run --max-tokens", (), (), (), ("gen_kwargs",), "also --temperature and --n"),
    Alias("eval run --out", (), (), (), ("output_path",)),
    Alias("train --out", ("output_dir",), ("default_local_dir",), ("save_path", "ckpt_path")),
    Alias("train --resume", ("resume_from_checkpoint",), ("resume_mode",), ("load_checkpoint",)),
)
"""Ours first, then the peers' names."""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _meanings() -> dict[str, dict[str, list[str]]]:
    """Habit name -> our key -> the peers that use it so."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in TABLE:
        for peer, names in row.names().items():
            for name in names:
                for written in {name, _last(name)}:
                    found.setdefault(written, {}).setdefault(row.key, []).append(peer)
    return found


MEANINGS: Mapping[str, Mapping[str, list[str]]] = _meanings()
"""A name can mean two things: ``train_batch_size`` is verl's prompts and OpenRLHF's minibatch."""

ALIASES: Mapping[str, str] = {name: next(iter(keys)) for name, keys in MEANINGS.items()}
"""Habit name -> our dotted key; where peers disagree, the first of the table."""


def alias_hint(name: str) -> str:
    """A sentence that says what another library's name is called here; empty when it is unknown.

    >>> alias_hint("num_generations")
    "TRL's num_generations is rollout.group_size here."
    >>> alias_hint("group")
    ''
    """
    keys = MEANINGS.get(name) or MEANINGS.get(_last(name).replace("-", "_")) or {}
    parts = [f"{_and(dict.fromkeys(peers))}'s {name} is {key}" for key, peers in keys.items()]
    if not parts:
        return ""
    notes = [row.note for row in TABLE if row.key in keys and row.note]
    return f"{', '.join(parts)} here{f' ({notes[0]})' if len(keys) == 1 and notes else ''}."


def _and(peers: Mapping[str, None]) -> str:
    *first, last = peers
    return f"{', '.join(first)} and {last}" if first else last
