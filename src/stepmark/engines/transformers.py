"""Generation in this process with a model of transformers: the engine on a CPU or one GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from stepmark.errors import ConfigError, EngineError, require
from stepmark.seeds import derive_seed
from stepmark.training.rope import room
from stepmark.types import Group, Prompt, Rollout, Sampling

from .checks import check_length, check_sampling
from .loading import load_policy
from .stopping import cut, end_ids, stop_test, texts_of

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from .decoding import Ended, Row

__all__ = ["TransformersEngine", "load_policy"]

MEMORY_GIB = 2.0
"""What keys, values and logits of a batch may take on a CPU by default."""


class TransformersEngine:
    """Batched sampling with a key-value cache; ids in, ids out.

    A rollout's ids depend on its prompt, the sampling and its seed, and not on its batch: its
    uniform numbers come from its seed alone. What remains is float rounding between batch shapes,
    which can matter where a uniform number falls within about 1e-7 of a boundary.

    Args:
        model: a causal language model of transformers. It is used, not copied: with the policy
            itself, `sync` only notes the version.
        tokenizer: the model's.
        batch_size: rows at a time, at most.
        memory_gib: keys, values and logits of a batch take about this at most; by default 2 GiB
            on a CPU and 30 % of the memory of a GPU. It only ever lowers the rows at a time.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        *,
        batch_size: int = 256,
        memory_gib: float | None = None,
    ) -> None:
        require("torch", extra="train", purpose="The transformers engine")
        require("transformers", extra="train", purpose="The transformers engine")
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1 (256 is usual).")
        self._model: PreTrainedModel | None = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.memory_gib = memory_gib
        self.version = 0
        self.tokens_read = 0
        """Tokens of prompts that went through the model so far, shared ones once."""

    @classmethod
    def load(
        cls,
        path_or_hub: str | Path,
        *,
        dtype: str = "float32",
        device: str = "auto",
        batch_size: int = 256,
    ) -> Self:
        """An engine with a model from a folder or the hub; `load_policy` says what is refused."""
        return cls(*load_policy(path_or_hub, dtype, device), batch_size=batch_size)

    @property
    def model(self) -> PreTrainedModel:
        """The model that is sampled.

        Raises:
            EngineError: the engine was closed.
        """
        if self._model is None:
            raise EngineError("This engine was closed; make a new one to generate.")
        return self._model

    @property
    def max_length(self) -> int | None:
        """Tokens of prompt and completion that the model can hold; None when it does not say.

        Those of a model with ``longrope`` are its original length: beyond it, its log-probs would
        depend on the other rows of the batch.
        """
        return room(self.model.config)

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        """Groups of ``n`` rollouts, one per prompt, each as soon as all of it has ended.

        Longest prompts first, each with those that it begins with. What is refused is refused
        before the first token.

        Args:
            prompts: see `stepmark.engines.render`.
            n: rollouts per prompt.
            sampling: how they are drawn; greedy ones of one prompt are all the same.
            seed: a rollout's own is ``derive_seed(seed, problem id, index)``.

        Raises:
            ConfigError: the sampling cannot be done, or a prompt leaves no room.
            EngineError: a prompt holds ids that the model has not, or memory ran out.
        """
        check_sampling(sampling, n)
        self._check(prompts, sampling)
        return self._groups(prompts, n, sampling, seed)

    def regenerate(self, prompt: Prompt, index: int, sampling: Sampling, seed: int) -> Rollout:
        """The rollout that `generate` makes at this index under this seed, made alone."""
        from .decoding import Row

        check_sampling(sampling)
        self._check([prompt], sampling)
        row = Row(prompt, 0, index, derive_seed(seed, prompt.problem.id, index))
        ended = [one for some in self._decode([row], sampling) for one in some]
        return self._rollouts(ended, sampling)[0]

    def sync(self, policy: Any, version: int) -> None:
        """Take over the weights of a policy (nothing to copy when it is the engine's own model).

        Raises:
            EngineError: the policy has other weights than the engine's model.
        """
        if policy is not self.model:
            from stepmark.training.lora import is_adapted, plain_weights

            is_merged = is_adapted(policy) and not is_adapted(self.model)
            try:
                weights = plain_weights(policy) if is_merged else policy.state_dict()
                self.model.load_state_dict(weights)
            except (RuntimeError, AttributeError) as error:
                raise EngineError(
                    f"The weights of {type(policy).__name__} do not fit the engine's "
                    f"{type(self.model).__name__}: {str(error).strip().splitlines()[-1].strip()} "
                    "Load the engine from a checkpoint of the same model."
                ) from error
        self.version = version

    def sleep(self) -> None:
        """Nothing to give back: the cache lives only while a batch is decoded."""

    def wake(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Let go of the model; idempotent."""
        self._model = None

    def _check(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        embeddings: Any = self.model.get_input_embeddings()
        embedded = int(embeddings.weight.shape[0])
        for prompt in prompts:
            check_length(prompt, sampling.max_tokens, self.max_length)
            if not prompt.ids or not 0 <= min(prompt.ids) <= max(prompt.ids) < embedded:
                seen = f"ids up to {max(prompt.ids)}" if prompt.ids else "no ids"
                raise EngineError(
                    f"The prompt of problem {prompt.problem.id!r} has {seen}; the model has "
                    f"{embedded} tokens. Render it with the model's own tokenizer."
                )

    def _groups(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        open_groups: dict[int, list[Ended]] = defaultdict(list)
        for batch in self._batches(prompts, n, sampling, seed):
            for some in self._decode(batch, sampling):
                for ended in some:
                    open_groups[ended.row.group].append(ended)
                    if len(open_groups[ended.row.group]) == n:
                        group = open_groups.pop(ended.row.group)
                        group.sort(key=lambda one: one.row.index)
                        yield Group(ended.row.prompt, tuple(self._rollouts(group, sampling)))

    def _batches(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[list[Row]]:
        from .decoding import Row
        from .sharing import longest_of

        batch: list[Row] = []
        room = 0
        whole = longest_of([prompt.ids for prompt in prompts])

        def rank(group: int) -> tuple[int, int, int]:
            longest = whole[group]
            return -len(prompts[longest].ids), longest, -len(prompts[group].ids)

        for group in sorted(range(len(prompts)), key=rank):
            prompt = prompts[group]
            for index in range(n):
                if not batch:
                    longest = len(prompts[whole[group]].ids)
                    room = self._rows_at_a_time(longest + sampling.max_tokens)
                row_seed = derive_seed(seed, prompt.problem.id, index)
                batch.append(Row(prompt, group, index, row_seed))
                if len(batch) == room:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def _rows_at_a_time(self, length: int) -> int:
        """As many rows of this many tokens as fit in memory, at most `batch_size`."""
        import torch

        model = self.model
        config = model.config.get_text_config()
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        kept = getattr(config, "num_key_value_heads", None) or heads
        per_token = 2 * config.num_hidden_layers * kept * width * model.dtype.itemsize
        # Logits stand four times: as the model gives them, float32, tempered, and as probabilities.
        per_row = length * per_token + 16 * config.vocab_size
        gib = self.memory_gib
        if gib is None and model.device.type == "cuda":
            gib = 0.3 * torch.cuda.get_device_properties(model.device).total_memory / 2**30
        return max(1, min(self.batch_size, int((gib or MEMORY_GIB) * 2**30 // per_row)))

    def _decode(self, rows: Sequence[Row], sampling: Sampling) -> Iterator[list[Ended]]:
        from torch import OutOfMemoryError

        from .decoding import Decoding

        with self._evaluating():
            decoding = Decoding(
                self.model,
                rows,
                sampling,
                end_ids(self.model, self.tokenizer),
                stop_test(self.tokenizer, sampling.stop),
            )
        while not decoding.done:
            # Neither eval mode nor no_grad may be on while the reader of the groups works.
            try:
                before = decoding.tokens_read
                with self._evaluating():
                    ended = decoding.advance()
                self.tokens_read += decoding.tokens_read - before
            except OutOfMemoryError as error:
                raise EngineError(
                    f"Memory ran out with {len(rows)} rows at a time: {error} "
                    f"Lower batch_size below {len(rows)}, or max_tokens."
                ) from error
            yield ended

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        model = self.model
        was_training = model.training
        if was_training:
            model.eval()
        try:
            yield
        finally:
            if was_training:
                model.train()

    def _rollouts(self, ended: Sequence[Ended], sampling: Sampling) -> list[Rollout]:
        texts = texts_of(self.tokenizer, [one.ids for one in ended])
        return [
            Rollout(
                prompt=one.row.prompt,
                index=one.row.index,
                ids=tuple(one.ids),
                logps=tuple(one.logps),
                finish=one.finish,
                text=cut(text, sampling.stop),
                seed=one.row.seed,
                policy_version=self.version,
            )
            for one, text in zip(ended, texts, strict=True)
        ]
