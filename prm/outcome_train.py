"""Training an outcome reward model: from settings to a run folder with checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stepmark.engines.loading import check_place, load_tokenizer
from stepmark.errors import ConfigError, DataError
from stepmark.training.fingerprint import fingerprint
from stepmark.training.forward import body_batches
from stepmark.training.processes import check_share, processes
from stepmark.training.trackers import check_trackers

from .batches import Batches
from .checkpoint import CARD, PrmCard, SelfTestRow, with_scores, write_card
from .data import data_hashes, excluded_problems
from .encoding import Encoded, StepEncoder
from .fitting import Event, FitResult, Loss
from .keeping import MINUS_LOSS
from .loading import Base
from .metrics import auroc
from .model import sample_of
from .outcome import OutcomeModel, load_outcome_model, outcome_base, pair_loss, point_loss
from .outcome_data import OutcomeRow, Pair, Solution, encode_solutions, pairs_of, read_solutions
from .splits import read_problems, write_problems
from .steps import solution_steps
from .train import (
    adapted,
    begun,
    check_base,
    check_folder,
    encoding_of,
    followed,
    keep_counts,
    trained_on,
)
from .train_config import OutcomeLoss, RmConfig, in_training

__all__ = ["PreparedOutcomes", "prepare_outcomes", "train_outcome_model"]


@dataclass(frozen=True, slots=True)
class PreparedOutcomes:
    """Solutions as tokens, before any weight is loaded."""

    config: RmConfig
    shown: list[Solution]
    """Short ones, for the self-test."""
    train: list[OutcomeRow]
    held_out: list[OutcomeRow]
    pairs: list[Pair]
    """Of ``train``; empty for the pointwise objective."""
    held_out_pairs: list[Pair]
    dropped: Counter[str]
    """Solutions that are not used, by reason."""
    files: Mapping[str, int]
    """How many solutions of each file are learnt from or held out."""

    def to_row(self) -> dict[str, Any]:
        """The counts as plain values, as ``data.json`` keeps them."""

        def part(rows: Sequence[OutcomeRow], pairs: Sequence[Pair]) -> dict[str, int]:
            right = sum(row.is_right for row in rows)
            return {"right": right, "wrong": len(rows) - right, "pairs": len(pairs)}

        return {
            "train": part(self.train, self.pairs),
            "held_out": part(self.held_out, self.held_out_pairs),
            "dropped": dict(sorted(self.dropped.items())),
        }


def prepare_outcomes(config: RmConfig) -> PreparedOutcomes:
    """Read, divide, encode and count the solutions; the tokenizer is all that is loaded.

    Raises:
        DataError: a file cannot be read, or there is nothing of both kinds to learn from.
        SetupError: there is no such base.
        ConfigError: a tag is not one token, or a tracker is not known.
    """
    check_trackers(config.algorithm.trackers)
    check_share(config.algorithm.rows_per_step, config.model.device)
    data = config.data
    train, held_out, dropped = read_solutions(
        data.rows,
        held_out=data.held_out,
        excluded=excluded_problems(data.exclude),
        limit=data.limit,
        held_out_limit=data.held_out_limit,
    )
    check_place(config.model.base)
    check_base(config.model)
    encoding = encoding_of(config.model.base, config.encoding)
    config = config.model_copy(update={"encoding": encoding})
    encoder = StepEncoder(load_tokenizer(config.model.base), in_training(data, encoding))
    rows, lost = encode_solutions(train, encoder)
    others, more = encode_solutions(held_out, encoder)
    seed = config.algorithm.seed
    made = partial(pairs_of, per_problem=data.pairs_per_problem, seed=seed)
    is_pairwise = config.algorithm.objective == "pairwise"
    pairs = made(rows) if is_pairwise else []
    _check_kinds(rows, pairs if is_pairwise else None)
    divided = (
        one._replace(steps=solution_steps(one.steps, encoding.splitter))
        for one in held_out or train
    )
    with_words = (one for one in divided if one.steps)
    shown = sorted(with_words, key=lambda one: sum(map(len, one.steps)))[:3]
    files = Counter(one.file for one in (*train, *held_out))
    dropped += lost + more
    return PreparedOutcomes(config, shown, rows, others, pairs, made(others), dropped, files)


def _check_kinds(rows: Sequence[OutcomeRow], pairs: Sequence[Pair] | None) -> None:
    right = sum(row.is_right for row in rows)
    if pairs is None and 0 < right < len(rows):
        return
    if pairs:
        return
    what = "no pair of a right and a wrong solution of one problem" if right else "no right one"
    what = what if right < len(rows) else "no wrong one"
    raise DataError(
        f"Of {len(rows):,} solutions within max_tokens there is {what}, so nothing can be told "
        "apart. Give solutions of both kinds of the same problems, or raise encoding.max_tokens."
    )


def train_outcome_model(
    prepared: PreparedOutcomes,
    out: Path,
    *,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> FitResult:
    """Train as prepared into a run folder; see `stepmark.prm.train.train_step_model`."""
    config = prepared.config
    hashes = data_hashes(config.data.rows, config.data.exclude)
    check_folder(out, config, hashes, resume=resume)
    model = _model(config)
    weights = fingerprint(model.model)
    precision = adapted(config.model, model.model, config.algorithm.seed, model.layer)
    known = read_problems(Path(config.model.base).expanduser()) or ()
    learner = OutcomeLearner(model, prepared, _card(prepared), known)
    with begun(out, config, hashes, weights, resume=resume) as run:
        keep_counts(run, prepared.to_row())
        return followed(run, config, learner, precision, on_event)


class OutcomeLearner:
    """An outcome model with its solutions, or pairs of them.

    Args:
        model: trained in place.
        prepared: what is learnt from, and with which loss.
        card: of the checkpoints.
        known: ids of the problems that the base was trained on.
    """

    def __init__(
        self,
        model: OutcomeModel,
        prepared: PreparedOutcomes,
        card: PrmCard,
        known: Collection[str] = (),
    ) -> None:
        self.outcome_model, self.model, self.tokenizer = model, model.model, model.tokenizer
        self.rows, self.pairs, self.card = prepared.train, prepared.pairs, card
        self.held_out, self.held_out_pairs = prepared.held_out, prepared.held_out_pairs
        self.config: OutcomeLoss = prepared.config.algorithm
        self.extra: nn.Module | None = None
        self.head: nn.Module | None = model.layer
        self.batches = _batches(prepared)
        self.problems = {row.problem for row in self.rows} | set(known)

    def losses(
        self, rows: Sequence[int], budget: int, mine: Sequence[int] | None = None
    ) -> Iterator[Callable[[], Loss]]:
        """The losses of a batch; see `stepmark.prm.learning.StepLearner.losses`."""
        size = len(rows)
        rows = rows if mine is None else mine
        chosen = [row for number in rows for row in self._rows(number)]
        samples = {id(row): sample_of(row.encoded) for row in chosen}
        units: list[Any] = list(samples.values())
        if self.pairs:
            units = []
            for number in rows:
                both = (samples[id(row)] for row in self._rows(number))
                units += [
                    replace(sample, pair=number, is_chosen=place == 0)
                    for place, sample in enumerate(both)
                ]
        row_of = {id(sample): row for sample, row in zip(units, chosen, strict=True)}
        for batch in body_batches(self.outcome_model.body, units, budget):
            yield partial(self._loss, [row_of[id(sample)] for sample in batch], size)

    def _rows(self, number: int) -> list[OutcomeRow]:
        """The solution of that number, or both of a pair, the better one first."""
        return [self.rows[place] for place in (self.pairs[number] if self.pairs else (number,))]

    def size(self, row: int) -> int:
        """Tokens of a solution, or of both of a pair."""
        return sum(len(one.prompt) + len(one.ids) for one in self._rows(row))

    def _loss(self, rows: Sequence[OutcomeRow], size: int) -> Loss:
        """Of solutions in a row; those of a pair stand together."""
        rewards_R = self.outcome_model.rewards_of([row.encoded for row in rows])
        is_right = torch.tensor([row.is_right for row in rows], device=rewards_R.device)
        config = self.config
        if self.pairs:
            losses = pair_loss(
                rewards_R[is_right],
                rewards_R[~is_right],
                margin=config.margin,
                center=config.center_coefficient,
            )
        else:
            losses = point_loss(rewards_R, is_right.float())
        loss = losses.sum() / size
        numbers = {
            "loss": float(loss.detach()),
            "num_tokens": float(sum(len(row.prompt) + len(row.ids) for row in rows)),
        }
        return Loss(loss, numbers)

    def evaluate(self) -> Mapping[str, float]:
        """Metrics on held-out solutions; empty without any."""
        encoded: list[Encoded] = [row.encoded for row in self.held_out]
        if not encoded:
            return {}
        budget = self.config.tokens_per_microbatch
        found = processes().divided(encoded, lambda some: self.outcome_model.rewards(some, budget))
        rewards = torch.tensor([float(reward or 0.0) for reward in found])
        return outcome_metrics(
            rewards, [row.is_right for row in self.held_out], self.held_out_pairs
        )

    def best_metric(self, found: Mapping[str, float]) -> str:
        """The share of pairs in the right order, or what comes nearest; else ``minus_loss``."""
        wanted = "accuracy" if self.pairs else "auroc"
        return next((name for name in (wanted, "auroc", "accuracy") if name in found), MINUS_LOSS)

    def write(self, folder: Path) -> None:
        """``prm.json`` with the scores of its rows, and which problems were learnt from."""
        write_card(folder, with_scores(self.outcome_model, self.card))
        write_problems(folder, (), more=self.problems)


def outcome_metrics(
    rewards_R: Tensor, is_right: Sequence[bool], pairs: Sequence[Pair]
) -> dict[str, float]:
    """How well right solutions are told from wrong ones; pairs in a tie count half.

    >>> rewards, pairs = torch.tensor([1.0, 0.0, 0.0]), [Pair(0, 1), Pair(2, 1)]
    >>> outcome_metrics(rewards, [True, False, True], pairs)["accuracy"]
    0.75
    """
    labels_R = torch.tensor(is_right).float()
    found = {"loss": float(point_loss(rewards_R.float(), labels_R).mean())}
    found["solutions"] = float(len(is_right))
    area = auroc(rewards_R.tolist(), is_right)
    if area is not None:
        found["auroc"] = area
    if pairs:
        chosen_P = rewards_R[torch.tensor([pair.chosen for pair in pairs])]
        rejected_P = rewards_R[torch.tensor([pair.rejected for pair in pairs])]
        ordered_P = (chosen_P > rejected_P).float() + (chosen_P == rejected_P).float() / 2
        found["accuracy"], found["pairs"] = float(ordered_P.mean()), float(len(pairs))
    return found


def _batches(prepared: PreparedOutcomes) -> Batches:
    config = prepared.config
    count = len(prepared.pairs) or len(prepared.train)
    is_balanced = config.data.sampling == "balanced"
    rare = [row.is_right for row in prepared.train] if is_balanced else None
    return Batches(count, config.algorithm.rows_per_step, config.algorithm.seed, rare)


def _model(config: RmConfig) -> OutcomeModel:
    table = config.model
    if (Path(table.base).expanduser() / CARD).is_file():
        return load_outcome_model(table.base, table.dtype, table.device)[0]
    base = Base(
        table.base,
        from_scratch=table.from_scratch,
        initializer_range=table.initializer_range,
        seed=config.algorithm.seed,
    )
    return outcome_base(base, table.dtype, table.device)


def _card(prepared: PreparedOutcomes) -> PrmCard:
    config = prepared.config
    if not prepared.shown:
        raise ConfigError("There is no solution to keep as a self-test. Give more rows.")
    return PrmCard(
        kind="outcome",
        head="reward",
        encoding=config.encoding,
        aggregation="last",
        origin="outcome",
        trained_on=trained_on(prepared.files),
        base=config.model.base,
        self_test=tuple(
            SelfTestRow(problem=one.problem, steps=one.steps) for one in prepared.shown
        ),
    )
