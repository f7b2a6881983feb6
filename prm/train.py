"""Training a process reward model: from settings to a run folder with checkpoints.

Whatever can be refused is refused before weights are loaded: settings, rows, and labels that
truncation would leave none of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmark.config.peft_table import ALL_LINEAR
from stepmark.engines.loading import check_place, load_tokenizer
from stepmark.errors import ConfigError, DataError
from stepmark.store import RunFolder, build_manifest, write_json
from stepmark.store.run import flatten
from stepmark.training.events import Evaluated, StepDone
from stepmark.training.fingerprint import fingerprint
from stepmark.training.lora import adapt, targets_of
from stepmark.training.precision import Precision, precision_of
from stepmark.training.processes import check_share, processes
from stepmark.training.trackers import Trackers, check_trackers

from .batches import Batches
from .checkpoint import (
    CARD,
    PrmCard,
    TrainedOn,
    aggregation_for,
    card_of,
    load_step_model,
    read_card,
    self_test_rows,
)
from .data import (
    Counts,
    LabelRule,
    Rows,
    StepRow,
    Tally,
    data_hashes,
    encode_rows,
    excluded_problems,
    read_rows,
)
from .encoding import EncodingSettings, StepEncoder
from .fitting import Event, FitResult, fit
from .formats.balance import has_words
from .formats.source import Source
from .learning import StepLearner, check_reading
from .loading import Base, base_model, token_id
from .model import StepModel
from .splits import read_problems
from .train_config import BaseTable, PrmConfig, StepBase, Table, in_training, longest_row, plain

__all__ = ["MAY_CHANGE", "Prepared", "prepare", "train_step_model"]

MAY_CHANGE = frozenset({"algorithm.trackers"})
"""Settings that no number of a run depends on: a resumed run may have others."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows as tokens, before any weight is loaded."""

    config: PrmConfig
    """With the encoding of the base where that is a reward model already."""
    source: Rows
    train: list[StepRow]
    held_out: list[StepRow]
    counts: Mapping[str, Counts]
    """What became of the labels: ``train`` and ``held_out``."""

    def to_row(self) -> dict[str, Any]:
        """The counts as plain values, as ``data.json`` keeps them."""
        parts = {name: counts.to_row() for name, counts in self.counts.items()}
        return {**parts, "dropped": dict(sorted(self.source.dropped.items()))}


def prepare(config: PrmConfig) -> Prepared:
    """Read, divide, encode and count the rows; the tokenizer is all that is loaded.

    Raises:
        DataError: a file cannot be read, or no label is left to learn from.
        SetupError: there is no such base.
        ConfigError: a tag or label is not one token, or a tracker is not known.
    """
    check_trackers(config.algorithm.trackers)
    check_share(config.algorithm.rows_per_step, config.model.device)
    data = config.data
    source = read_rows(
        data.rows,
        held_out=data.held_out,
        excluded=excluded_problems(data.exclude),
        limit=data.limit,
        held_out_limit=data.held_out_limit,
    )
    check_place(config.model.base)
    check_base(config.model)
    config = config.model_copy(update={"encoding": encoding_of(config.model.base, config.encoding)})
    encoding = in_training(data, config.encoding)
    encoder = StepEncoder(load_tokenizer(config.model.base), encoding)
    rule = LabelRule(data.steps, data.after_error, data.labels, data.hard_above)
    whole = config.algorithm.lm_weight > 0
    train, counts = encode_rows(source.train, encoder, rule, whole=whole)
    held_out, others = encode_rows(source.held_out, encoder, rule)
    if not train:
        raise DataError(_nothing_left(config, counts))
    return Prepared(config, source, train, held_out, {"train": counts, "held_out": others})


def train_step_model(
    prepared: Prepared,
    out: Path,
    *,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> FitResult:
    """Train as prepared into a run folder; checkpoints there are reward models.

    Args:
        prepared: from `prepare`.
        out: the run folder; it is made, or continued with ``resume``.
        resume: continue the run that lies there.
        on_event: told what happens, in the first of several processes.

    Raises:
        SetupError: the base cannot be loaded.
        ConfigError: the base has no such head.
        RunError: the folder holds another run, or a loss is not finite.
        Stopped: by a signal; the run can be resumed.
    """
    config = prepared.config
    hashes = data_hashes(config.data.rows, config.data.exclude)
    check_folder(out, config, hashes, resume=resume)
    model = _model(config)
    weights = fingerprint(model.model)
    precision = adapted(config.model, model.model, config.algorithm.seed, model.layer)
    if model.tokens is None or not is_reward_model(config.model.base):
        texts = (config.model.wrong, config.model.right)
        check_reading(model, prepared.train[0], texts if model.tokens else None)
    learner = StepLearner(
        model,
        prepared.train,
        prepared.held_out,
        _card(prepared, model),
        config.algorithm,
        _batches(prepared),
        problems={row.problem.text for row in prepared.source.train},
        known=read_problems(Path(config.model.base).expanduser()) or (),
    )
    with begun(out, config, hashes, weights, resume=resume) as run:
        keep_counts(run, prepared.to_row())
        return followed(run, config, learner, precision, on_event)


def check_folder(out: Path, config: Table, hashes: Mapping[str, str], *, resume: bool) -> None:
    """Refuse a run folder that cannot be used, before weights are loaded."""
    here = processes()
    if here.is_first:
        manifest = build_manifest(config=plain(config), data_hashes=hashes)
        RunFolder.check(out, plain(config), manifest, resume=resume, may_change=MAY_CHANGE)
    here.exchange(None)


def begun(
    out: Path, config: Any, hashes: Mapping[str, str], weights: str, *, resume: bool
) -> AbstractContextManager[RunFolder]:
    """The run folder, made or continued, and locked; the first process does so for all."""
    processes().check_equal(weights, "weights to begin with")
    if not processes().is_first:
        return nullcontext(RunFolder(out))
    manifest = build_manifest(
        config=plain(config),
        seeds={"run": config.algorithm.seed},
        data_hashes=hashes,
        weights_hash=weights,
    )
    return RunFolder.create(out, plain(config), manifest, resume=resume, may_change=MAY_CHANGE)


def keep_counts(run: RunFolder, counts: Mapping[str, Any]) -> None:
    """What became of the labels, as ``data.json`` of the run."""
    if processes().is_first:
        write_json(run.path / "data.json", counts)


def followed(
    run: RunFolder,
    config: Any,
    learner: Any,
    precision: Precision,
    on_event: Callable[[Event], None] | None,
) -> FitResult:
    """The training itself; the first process tells whoever watches, and the trackers."""
    is_first = processes().is_first
    names = config.algorithm.trackers if is_first else ()
    with Trackers(names, run.path, flatten(plain(config))) as trackers:

        def tell(event: Event) -> None:
            if on_event is not None and is_first:
                on_event(event)
            if isinstance(event, StepDone):
                trackers.log(event.step, event.metrics)
            elif isinstance(event, Evaluated):
                trackers.log(event.step, {f"eval/{k}": n for k, n in event.metrics.items()})

        return fit(run, learner, config.algorithm, precision=precision, on_event=tell)


def adapted(table: BaseTable, model: Any, seed: int, head: Any) -> Precision:
    """How forward passes are made; adapters are put beside the layers of the body, where asked."""
    if table.peft is not None:
        peft = table.peft
        if peft.target_modules == (ALL_LINEAR,):
            layers = targets_of(model, peft).items()
            names = {name.rpartition(".")[2] for name, layer in layers if layer is not head}
            peft = peft.model_copy(update={"target_modules": tuple(sorted(names))})
        adapt(model, peft, seed=seed, base=table.base)
        if head is not model.get_output_embeddings():
            head.requires_grad_(True)
    return precision_of(model, table.autocast, table.gradient_checkpointing)


def is_reward_model(base: str) -> bool:
    """Whether a base was trained here and learns further."""
    return (Path(base).expanduser() / CARD).is_file()


def check_base(table: BaseTable) -> None:
    """Refuse to draw the weights of a base that learns further: they would be read all the same.

    Raises:
        ConfigError: the message names both.
    """
    if table.from_scratch and is_reward_model(table.base):
        raise ConfigError(
            f"model.from_scratch is true, and model.base is {table.base!r}, a reward model that "
            "was trained here: its weights are what it would go on with. Leave from_scratch out, "
            "or begin with the causal language model that it was made of."
        )


def encoding_of(base: str, given: EncodingSettings) -> EncodingSettings:
    """The encoding of a base that is a reward model already; else the one that was given.

    Raises:
        ConfigError: the two differ.
    """
    if not is_reward_model(base):
        return given
    known = read_card(base).encoding
    if given not in (known, EncodingSettings()):
        wrong = next(k for k, v in known.model_dump().items() if v != getattr(given, k))
        raise ConfigError(
            f"encoding.{wrong} is {getattr(given, wrong)!r}, and the reward model {base!r} was "
            f"trained with {getattr(known, wrong)!r}. Leave [encoding] out: it learns further as "
            "it was."
        )
    return known


def _model(config: PrmConfig) -> StepModel:
    table = config.model
    if is_reward_model(table.base):
        return _trained(table)
    base = Base(
        table.base,
        table.head,
        table.wrong,
        table.right,
        table.from_scratch,
        table.initializer_range,
        config.algorithm.seed,
    )
    return base_model(base, table.dtype, table.device)


def _trained(table: StepBase) -> StepModel:
    """A reward model that learns further, read as it was: with its head, and its own two tokens."""
    model, _ = load_step_model(table.base, table.dtype, table.device)
    if model.head != table.head:
        raise ConfigError(
            f"model.head is {table.head!r}, and the reward model {table.base!r} has "
            f"{model.head!r}. Set model.head to that, or begin with its base."
        )
    given = {"wrong": table.wrong, "right": table.right}
    for name, text in given.items() if model.tokens else ():
        known = getattr(model.tokens, name)
        is_default = text == StepBase.model_fields[name].default
        if not is_default and token_id(model.tokenizer, text) != known:
            raise ConfigError(
                f"model.{name} is {text!r}, and the reward model {table.base!r} was trained with "
                f"{model.tokenizer.decode([known])!r}. Leave it out: it learns further as it was."
            )
    return model


def trained_on(files: Mapping[str, int]) -> tuple[TrainedOn, ...]:
    """What a card says of the files of its rows, by how many rows of each were used."""
    return tuple(
        TrainedOn(name=Path(file).name, hash=Source(file).digest(), rows=rows)
        for file, rows in files.items()
    )


def _card(prepared: Prepared, model: StepModel) -> PrmCard:
    config, source = prepared.config, prepared.source
    encoder = StepEncoder(model.tokenizer, config.encoding)
    rows = list(filter(has_words, source.held_out)) or list(filter(has_words, source.train))
    shortest = sorted(rows, key=lambda row: sum(map(len, row.steps)))
    fitting = [row for row in shortest[:100] if encoder.encode(row.problem, row.steps).ends]
    return card_of(
        model,
        encoding=config.encoding,
        aggregation=aggregation_for(source.origin),
        labels="hard" if config.data.labels == "hard" else source.kind,
        origin=source.origin,
        trained_on=trained_on(source.files),
        base=config.model.base,
        self_test=self_test_rows(fitting),
    )


def _batches(prepared: Prepared) -> Batches:
    config, rows = prepared.config, prepared.train
    is_balanced = config.data.sampling == "balanced"
    rare = [row.is_wrong for row in rows] if is_balanced else None
    if rare is not None and (all(rare) or not any(rare)):
        raise ConfigError(
            f'data.sampling is "balanced", and of {len(rows):,} rows {sum(rare):,} have a wrong '
            'label: one kind is missing. Give rows of both, or set it to "natural".'
        )
    unit = (lambda n: rows[n].prompt.tobytes()) if config.data.keep_prefixes_together else None
    return Batches(len(rows), config.algorithm.rows_per_step, config.algorithm.seed, rare, unit)


def _nothing_left(config: PrmConfig, counts: Counts) -> str:
    def said(tally: Tally) -> str:
        return f"{tally.right:,} right and {tally.wrong:,} wrong"

    reasons = ", ".join(f"{why}: {n:,}" for why, n in counts.dropped.items())
    longest = longest_row(config.data, config.encoding)
    return (
        f"No label is left to learn from: the rows have {said(counts.given)}, the loss would cover "
        f"{said(counts.wanted)}, and within {longest} tokens there is "
        f"none ({reasons}). Raise data.max_tokens and encoding.max_tokens, or set "
        'data.steps = "all".'
    )
