"""The settings of a reward model's training: four tables, checked before any model is loaded.

No torch here: configurations are read, checked and printed without it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from stepmark.config.peft_table import PeftTable, peft_of
from stepmark.config.tables import Names, Table

from .encoding import EncodingSettings

__all__ = [
    "TABLES",
    "BaseTable",
    "DataTable",
    "LearningTable",
    "OutcomeLoss",
    "OutcomeTable",
    "PrmConfig",
    "RmConfig",
    "RowsTable",
    "StepLoss",
]

TABLES = ("model", "data", "encoding", "algorithm")
"""The tables that may be set."""


class BaseTable(Table):
    """The model that training begins with, and how it is held."""

    base: str = Field(min_length=1)
    """Folder or hub id of a causal language model with its tokenizer, or of a reward model that
    was trained here and learns further."""

    from_scratch: bool = False
    """Whether weights are drawn anew from the base's config; none are read then."""

    initializer_range: float | None = Field(default=None, gt=0)
    """Standard deviation of weights that are drawn, with ``from_scratch``; the config's own when
    absent. Tiny models learn nothing at 0.02 in the time in which they learn all at 0.1."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the master weights. Pure bfloat16 cannot move at small learning rates."""

    autocast: Literal["auto", "bfloat16", "none"] = "auto"
    """Type of matrix products over float32 weights: ``auto`` is bfloat16 on a GPU that has it, and
    ``none`` elsewhere."""

    gradient_checkpointing: bool = False
    """Compute the layers again in the backward pass: less memory, about a third more time."""

    peft: Annotated[PeftTable | None, BeforeValidator(peft_of)] = None
    """Adapters that learn with the head in place of the whole model: ``"lora"``, or a table."""

    device: str = "auto"
    """``auto`` (a GPU when there is one), ``cpu``, ``cuda`` or ``cuda:N``."""

    @model_validator(mode="after")
    def _drawn_from_a_range(self) -> Self:
        if self.initializer_range is not None and not self.from_scratch:
            raise ValueError(
                f"model.initializer_range is {self.initializer_range:g} and model.from_scratch is "
                "false: weights that are read are not drawn. Set model.from_scratch = true, or "
                "leave initializer_range out"
            )
        return self


class StepBase(BaseTable):
    """The model that training begins with, and how steps are read from it."""

    head: Literal["classifier", "two_logits"] = "classifier"
    """``classifier``: a fresh layer of two numbers; ``two_logits``: the base's logits of the tokens
    ``wrong`` and ``right``."""

    wrong: str = "-"
    """Of ``two_logits``: one token of the tokenizer that is said of a wrong step."""

    right: str = "+"
    """Of ``two_logits``: the one that is said of a right step."""


class RowsTable(Table):
    """Which rows are learnt from, and which are kept to examine the model."""

    rows: Names = Field(min_length=1)
    """Files of ``stepmark prm convert``, or of your own with problem, steps and labels."""

    held_out: float = Field(default=0.1, ge=0, lt=1)
    """Share of the problems whose rows are never learnt from, chosen by a hash of their text."""

    held_out_limit: int | None = Field(default=500, ge=1)
    """Most held-out rows in one evaluation, chosen by hash; all when ``none``."""

    exclude: Names = ()
    """Files whose problems must not be learnt from, such as the benchmarks of the report: rows with
    a column problem or question, as ProcessBench, PRM800K, GSM8K and ``prm convert`` have."""

    limit: int | None = Field(default=None, ge=1)
    """Rows that are read, held-out ones included, chosen by hash; all when absent."""

    max_tokens: int | None = Field(default=None, ge=8)
    """Longest row in training, where that is less than ``encoding.max_tokens``, which travels with
    the checkpoint and bounds what it scores later."""

    sampling: Literal["natural", "balanced"] = "natural"
    """``balanced`` draws as many rows with a wrong label as without one in every epoch: all of the
    rarer kind, and as many of the other, drawn anew each epoch."""


class DataTable(RowsTable):
    """Which labelled steps are learnt from."""

    steps: Literal["all", "last"] = "all"
    """Labels that the loss covers: all of a row, or that of its last step only. Rows made of a
    prefix and an alternative repeat the labels of the prefix: they want ``last``."""

    after_error: Literal["mask", "wrong", "keep"] = "mask"
    """Steps behind the first wrong one: without a label, all wrong, or as the data have them."""

    labels: Literal["as_given", "hard"] = "as_given"
    """``hard`` makes 1 of every label above ``hard_above``, and 0 of the others."""

    hard_above: float = Field(default=0.0, ge=0, lt=1)
    """With ``labels = "hard"``; 0 is Math-Shepherd's: right if one rollout reaches the answer."""

    keep_prefixes_together: bool = False
    """Rows with the same tokens before their first label (with ``steps = "last"``: that differ in
    their last step only) come in one batch, where those are computed once: cheaper, with batches
    that are more alike inside and may exceed ``rows_per_step``. One level is shared: a prefix that
    begins a longer one is computed again with that."""


class LearningTable(Table):
    """How long, how fast, how often to look and to save."""

    epochs: float = Field(default=1.0, gt=0)
    """Passes over the rows, where ``steps`` does not say how many batches there are."""

    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps in all, at most; ``epochs`` decides when absent."""

    rows_per_step: int = Field(default=64, ge=1)
    """Rows of one optimizer step (of one pair each, for pairwise losses)."""

    tokens_per_microbatch: int = Field(default=8192, ge=1)
    """Tokens of one forward pass: memory, not results, depend on it. No row may exceed it: at least
    ``data.max_tokens``."""

    learning_rate: float = Field(default=1e-5, gt=0)
    """Peak rate of AdamW: 1e-5 for a model of 1.5 billion weights, 1e-4 with adapters."""

    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Shape of the rate after the warm-up; see ``target`` for one that goes by the held-out F1."""

    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from near 0 to its peak."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay of matrices (AdamW)."""

    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the gradient's running mean."""

    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the squared gradient's running mean."""

    adam_epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the squared gradient's mean."""

    grad_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient; longer ones are shortened to it."""

    eval_every: int | None = Field(default=100, ge=1)
    """Steps between two evaluations on held-out rows, besides first and last."""

    best_metric: str = "auto"
    """Held-out metric whose highest value marks ``checkpoints/best``; ``auto`` takes the F1 of
    whole solutions where the rows tell their first error, that of steps elsewhere, and
    ``minus_loss`` where the held-out rows have labels of one kind only."""

    patience: int | None = Field(default=None, ge=1)
    """Evaluations without a better value after which training stops."""

    target: float | None = Field(default=None, gt=0, le=1)
    """Value of the best metric from which on the rate falls to 0, over ``target_steps``."""

    target_steps: int = Field(default=200, ge=1)
    """Steps that follow once ``target`` was reached; then training ends."""

    save_every: int | None = Field(default=100, ge=1)
    """A resumable checkpoint every so many steps: the most that a crash can cost."""

    keep_checkpoints: int = Field(default=2, ge=1)
    """How many of the newest numbered checkpoints stay on the disk."""

    trackers: Names = ()
    """``tensorboard``, ``trackio``, ``wandb``, or ``file.py:Class``, besides ``metrics.jsonl``."""

    seed: int = Field(default=0, ge=0)
    """Of fresh weights, data order and balanced draws."""

    @model_validator(mode="after")
    def _best_rises(self) -> Self:
        if self.best_metric == "loss":
            raise ValueError(
                "algorithm.best_metric is 'loss', and the highest value marks the best: the worst "
                'model would be kept. Set it to "minus_loss"'
            )
        return self

    @model_validator(mode="after")
    def _target_needs_evaluation(self) -> Self:
        for name in ("target", "patience"):
            if getattr(self, name) is not None and self.eval_every is None:
                raise ValueError(
                    f"algorithm.{name} is {getattr(self, name)} and algorithm.eval_every is none: "
                    "it goes by evaluations on the way. Set eval_every, such as 100"
                )
        if self.target is not None and self.schedule != "constant":
            raise ValueError(
                f"algorithm.target is {self.target:g} and algorithm.schedule is "
                f"{self.schedule!r}: only one of them can lower the rate. Set schedule = "
                '"constant", or leave target out'
            )
        return self


class StepLoss(LearningTable):
    """The loss of a process reward model, and how it is learnt."""

    average: Literal["steps", "rows"] = "steps"
    """Mean over all labelled steps of a batch; or over each row first, so that long solutions do
    not count more."""

    class_weights: Literal["none", "balanced"] = "none"
    """``balanced`` weighs wrong steps by the number of right ones over that of wrong ones in the
    data, held within 0.1 and 10."""

    lm_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of a next-token loss over the tokens of all solutions, beside the label loss; 0.5 lets
    tiny models from scratch converge. ``classifier`` has a head of its own for it."""


class PrmConfig(Table):
    """Everything that a process reward model's training depends on."""

    model: StepBase
    """The base and its head."""

    data: DataTable
    """The labelled rows."""

    encoding: EncodingSettings = Field(default_factory=EncodingSettings)
    """How problem and steps become tokens; travels with the checkpoint."""

    algorithm: StepLoss = Field(default_factory=StepLoss)
    """Loss and optimizer."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        check_budget(longest_row(self.data, self.encoding), self.algorithm)
        check_rate(self.model, self.algorithm)
        return self


class OutcomeTable(RowsTable):
    """Which solutions are learnt from: ``final_correct`` of rows, or preferences."""

    rows: Names = Field(min_length=1)
    """Files of ``stepmark prm convert`` with final_correct; of your own, with problem,
    final_correct and completion or steps; or of preferences, with prompt, chosen and rejected."""

    pairs_per_problem: int = Field(default=4, ge=1)
    """Most pairs of a right and a wrong solution that are made for one problem."""


class OutcomeLoss(LearningTable):
    """The loss of an outcome reward model, and how it is learnt."""

    objective: Literal["pointwise", "pairwise"] = "pointwise"
    """``pointwise``: the reward of each solution against whether it ends right; ``pairwise``: that
    of the better solution of a problem over the worse one (Bradley-Terry)."""

    margin: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Pairwise: by how much the better reward must lead."""

    center_coefficient: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Pairwise: weight of the squared sum of both rewards; 0.01 holds rewards near 0."""

    @model_validator(mode="after")
    def _pairwise_has_pairs(self) -> Self:
        for name in ("margin", "center_coefficient"):
            if getattr(self, name) and self.objective != "pairwise":
                raise ValueError(
                    f"algorithm.{name} is {getattr(self, name):g} and algorithm.objective is "
                    f"{self.objective!r}: it is of pairs. Set algorithm.objective = "
                    '"pairwise", or leave it out'
                )
        return self


class RmConfig(Table):
    """Everything that an outcome reward model's training depends on."""

    model: BaseTable
    """The base; its head is one number."""

    data: OutcomeTable
    """The solutions."""

    encoding: EncodingSettings = Field(default_factory=EncodingSettings)
    """How problem and solution become tokens; travels with the checkpoint."""

    algorithm: OutcomeLoss = Field(default_factory=OutcomeLoss)
    """Loss and optimizer."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        longest = longest_row(self.data, self.encoding)
        budget = 2 * longest if self.algorithm.objective == "pairwise" else 0
        if budget > self.algorithm.tokens_per_microbatch:
            raise ValueError(
                f"Rows may have {longest} tokens (data.max_tokens, encoding.max_tokens) and "
                f"algorithm.tokens_per_microbatch is {self.algorithm.tokens_per_microbatch}: one "
                "pair could exceed the budget of a forward pass. Set "
                f"algorithm.tokens_per_microbatch to {budget} or more, or lower data.max_tokens"
            )
        check_budget(longest, self.algorithm)
        check_rate(self.model, self.algorithm)
        if self.data.sampling == "balanced" and self.algorithm.objective == "pairwise":
            raise ValueError(
                'data.sampling is "balanced" and algorithm.objective is "pairwise": every pair '
                'has one of either kind already. Set data.sampling to "natural"'
            )
        return self


def longest_row(data: RowsTable, encoding: EncodingSettings) -> int:
    """Most tokens of a row in training."""
    return min(encoding.max_tokens, data.max_tokens or encoding.max_tokens)


def in_training(data: RowsTable, encoding: EncodingSettings) -> EncodingSettings:
    """The encoding of rows in training: that of the checkpoint with a limit of its own."""
    return encoding.model_copy(update={"max_tokens": longest_row(data, encoding)})


def check_budget(longest: int, learning: LearningTable) -> None:
    """Refuse a row limit above the budget of a forward pass: memory would follow the rows.

    Raises:
        ValueError: it names both settings.
    """
    if longest > learning.tokens_per_microbatch:
        raise ValueError(
            f"Rows may have {longest} tokens (data.max_tokens, encoding.max_tokens) and "
            f"algorithm.tokens_per_microbatch is {learning.tokens_per_microbatch}: one row could "
            f"exceed the budget of a forward pass. Set it to {longest} or more, or lower "
            "data.max_tokens"
        )


def check_rate(model: BaseTable, learning: LearningTable) -> None:
    """Refuse updates that bfloat16 weights round away.

    Raises:
        ValueError: it names both settings.
    """
    if model.dtype == "bfloat16" and model.peft is None and learning.learning_rate < 1e-4:
        raise ValueError(
            f'model.dtype is "bfloat16" and algorithm.learning_rate is '
            f"{learning.learning_rate:g}: updates this small are rounded away and the weights "
            'would not move. Set model.dtype = "float32", or model.peft = "lora"'
        )


def plain(config: Table) -> dict[str, Any]:
    """The settings as plain values, as ``config.toml`` keeps them."""
    return config.model_dump(mode="json")
