"""What a refresh learns by: the loss of ``prm train``, stopped by old and new held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.engines.loading import load_tokenizer
from stepmark.errors import DataError
from stepmark.prm.batches import Batches
from stepmark.prm.checkpoint import PrmCard, load_step_model, read_card, self_test_rows
from stepmark.prm.data import Counts, LabelRule, StepRow, data_hashes, encode_rows
from stepmark.prm.encoding import EncodingSettings, StepEncoder
from stepmark.prm.fitting import FitResult
from stepmark.prm.formats import write_labelled_steps
from stepmark.prm.learning import StepLearner, check_reading, held_out_metrics
from stepmark.prm.splits import read_problems
from stepmark.prm.train import adapted, begun, check_folder, followed, keep_counts, trained_on
from stepmark.prm.train_config import PrmConfig
from stepmark.training.fingerprint import fingerprint

from .config import LabelTable, RefreshConfig
from .draw import Mixture
from .figures import HeldOut

__all__ = ["Learnt", "ReplayLearner", "encode_mixture", "label_rule", "learn"]

Watch = Callable[[Any], None]


class Learnt(NamedTuple):
    """Rows of a mixture as tokens."""

    rows: list[StepRow]
    counts: Counts


class ReplayLearner(StepLearner):
    """A step model with rows old and new; its held-out loss is the sum of both."""

    def __init__(self, *given: Any, new: HeldOut, old: HeldOut, **more: Any) -> None:
        super().__init__(*given, **more)
        self.parts = {"new": new, "old": old}

    def evaluate(self) -> Mapping[str, float]:
        """Metrics of either part under ``new_`` and ``old_``; ``loss`` is the sum of theirs."""
        found: dict[str, float] = {}
        for name, part in self.parts.items():
            if part.rows:
                encoded = [row.encoded for row in part.rows]
                budget = self.config.tokens_per_microbatch
                scores = self.step_model.step_probabilities(encoded, budget)
                own = held_out_metrics(part.rows, scores)
                found |= {f"{name}_{key}": value for key, value in own.items()}
        if found:
            found["loss"] = sum(found.get(f"{name}_loss", 0.0) for name in self.parts)
        return found


def label_rule(table: LabelTable) -> LabelRule:
    """Which labels count, as `stepmark.prm.data` has it."""
    return LabelRule(table.steps, table.after_error, table.labels, table.hard_above)


def encode_mixture(mixture: Mixture, folder: Path, settings: RefreshConfig) -> Learnt:
    """The rows to learn from as tokens of the reward model in a folder.

    Raises:
        DataError: no new row has a label left.
    """
    card = read_card(folder)
    longest = min(settings.data.max_tokens or card.encoding.max_tokens, card.encoding.max_tokens)
    encoding: EncodingSettings = card.encoding.model_copy(update={"max_tokens": longest})
    encoder = StepEncoder(load_tokenizer(str(folder)), encoding)
    whole = settings.algorithm.lm_weight > 0
    rule = label_rule(settings.data)
    rows, counts = encode_rows([*mixture.new, *mixture.replay], encoder, rule, whole=whole)
    if not rows or not mixture.new:
        why = ", ".join(f"{n:,} {reason}" for reason, n in counts.dropped.items()) or "none dropped"
        raise DataError(
            f"Round {mixture.round} has nothing new to learn from: {len(mixture.new):,} new rows "
            f"of {mixture.admitted:,} that were admitted ({why}). Give rows with labels, of "
            "problems that are not all held out."
        )
    return Learnt(rows, counts)


def learn(
    folder: Path,
    mixture: Mixture,
    learnt: Learnt,
    held_out: tuple[HeldOut, HeldOut],
    settings: RefreshConfig,
    work: Path,
    on_event: Watch | None = None,
) -> FitResult:
    """Train the reward model of a folder further, in a run folder that a kill cannot spoil.

    Args:
        folder: of the reward model; it stays as it is.
        mixture: what is learnt from.
        learnt: the same as tokens.
        held_out: of the new round, and of all earlier ones.
        settings: of loss and optimizer.
        work: holds the run; one that lies there is continued.
        on_event: told what happens.

    Raises:
        RunError: the run there is another one, or a loss is not finite.
        Stopped: by a signal; the same call continues.
    """
    rows_file = work / "mixture.jsonl"
    write_labelled_steps(rows_file, [*mixture.new, *mixture.replay])
    before = read_card(folder)
    hashes = data_hashes([str(rows_file)], ())
    table = settings.model
    model, _ = load_step_model(folder, table.dtype, table.device)
    config = _config(folder, rows_file, before, settings, model)
    check_folder(work / "run", config, hashes, resume=True)
    weights = fingerprint(model.model)
    precision = adapted(config.model, model.model, config.algorithm.seed, model.layer)
    texts = (config.model.wrong, config.model.right) if model.tokens else None
    check_reading(model, learnt.rows[0], texts)
    new, old = held_out
    learner = ReplayLearner(
        model,
        learnt.rows,
        [*new.rows, *old.rows],
        _card(before, mixture, rows_file, folder),
        config.algorithm,
        Batches(len(learnt.rows), config.algorithm.rows_per_step, config.algorithm.seed),
        problems={row.problem.text for row in (*mixture.new, *mixture.replay)},
        known=read_problems(folder) or (),
        new=new,
        old=old,
    )
    with begun(work / "run", config, hashes, weights, resume=True) as run:
        keep_counts(run, {"train": learnt.counts.to_row()})
        return followed(run, config, learner, precision, on_event)


def _config(
    folder: Path, rows: Path, card: PrmCard, settings: RefreshConfig, model: Any
) -> PrmConfig:
    """The settings of the run, as those of ``prm train`` on the rows of the mixture."""
    table = settings.model.model_dump()
    names = {"head": card.head}
    if model.tokens is not None:
        names["wrong"] = model.tokenizer.decode([model.tokens.wrong])
        names["right"] = model.tokenizer.decode([model.tokens.right])
    return PrmConfig.model_validate(
        {
            "model": {**table, "base": str(folder), **names},
            "data": {"rows": [str(rows)], "held_out": 0.0, **settings.data.model_dump()},
            "encoding": card.encoding.model_dump(),
            "algorithm": settings.algorithm.model_dump(),
        }
    )


def _card(before: PrmCard, mixture: Mixture, rows: Path, folder: Path) -> PrmCard:
    """The card of the model before, with what was learnt now; its scores mean what they meant."""
    both: Sequence[Any] = [*mixture.new, *mixture.replay]
    shortest = sorted(both, key=lambda row: sum(map(len, row.steps)))[:100]
    return before.model_copy(
        update={
            "trained_on": (*before.trained_on, *trained_on({str(rows): len(both)})),
            "base": str(folder),
            "self_test": self_test_rows(shortest),
        }
    )
