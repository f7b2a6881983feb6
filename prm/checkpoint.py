"""Checkpoints of reward models: a Hugging Face folder, and ``prm.json`` that says how to use it.

The card keeps the settings of the encoding, so that a solution becomes the same tokens wherever the
checkpoint is used, and three rows with the scores that the model gave them when it was saved. They
are scored again when it is loaded: other weights, another tokenizer or another reading show at once
and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from stepmark.errors import RunError, SetupError
from stepmark.store.files import publish, write_json
from stepmark.training.checkpoint import Policy, write_policy
from stepmark.training.tolerances import SCORES_BFLOAT16, SCORES_FLOAT32
from stepmark.types import LabelKind, LabelledSteps, Problem

from .encoding import Encoded, EncodingSettings, StepEncoder
from .loading import Dtype, trained_model
from .model import HeadKind, StepModel, TwoTokens

__all__ = [
    "CARD",
    "PrmCard",
    "SelfTestRow",
    "TrainedOn",
    "aggregation_for",
    "card_of",
    "check_self_test",
    "load_step_model",
    "read_card",
    "save_step_model",
    "scores_of",
    "self_test_rows",
    "with_scores",
    "write_card",
]

CARD = "prm.json"
ROWS = 3
"""Self-test rows of a card."""


def _finite(scores: tuple[float, ...]) -> tuple[float, ...]:
    if not all(math.isfinite(score) for score in scores):
        raise ValueError("a score is not a finite number")
    return scores


class Scores(Protocol):
    """A model that a card describes."""

    model: Any
    tokenizer: Any

    def step_probabilities(self, encoded: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Probabilities in [0, 1] of encoded solutions."""
        ...


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SelfTestRow(_Part):
    """A solution and the scores that the model gave it when it was saved."""

    problem: str
    steps: tuple[str, ...] = Field(min_length=1)
    scores: Annotated[tuple[float, ...], AfterValidator(_finite)] = ()
    """Of the kept steps, in probability; of an outcome model one, the logistic function of its
    reward. Filled in on saving."""


class TrainedOn(_Part):
    """A file of labelled rows."""

    name: str
    hash: str
    rows: int
    """How many of its rows were learnt from or held out."""


class PrmCard(_Part):
    """What a checkpoint says of itself; stored as ``prm.json``."""

    version: Literal[1] = 1
    kind: Literal["process", "outcome"] = "process"
    """A probability per step, or one reward for a whole solution."""
    head: HeadKind | Literal["reward"] = "classifier"
    """``reward``: one number, read at the last token; with ``kind = "outcome"``."""
    tokens: TwoTokens | None = None
    """Ids of the tokens (wrong, right) whose logits are compared; with ``two_logits``."""
    encoding: EncodingSettings = Field(default_factory=EncodingSettings)
    aggregation: str = "min"
    """How the scores of the steps become one for the solution, unless told otherwise."""
    labels: LabelKind = "hard"
    """Kind of the labels that it was trained on."""
    origin: str = ""
    """Who labelled: ``human``, ``first_error``, ``rollouts``; empty where that is not known."""
    trained_on: tuple[TrainedOn, ...] = ()
    base: str = ""
    """The model that training began with."""
    self_test: tuple[SelfTestRow, ...] = ()
    """Three rows with their scores."""
    self_test_dtype: Dtype = "float32"
    """Type of the weights that gave those scores. Filled in on saving."""


def aggregation_for(origin: str) -> str:
    """How scores of a model trained on such labels are best made one number.

    Labels by people say whether each step is right: the worst step decides. Labels from rollouts
    say how often the answer is still reached: the last one says most (arXiv:2501.07301, 3.2).

    >>> aggregation_for("human"), aggregation_for("rollouts")
    ('min', 'last')
    """
    return "last" if origin == "rollouts" else "min"


def self_test_rows(rows: Sequence[LabelledSteps]) -> tuple[SelfTestRow, ...]:
    """Three rows of the data for a card: the first, one of the middle, the last."""
    places = sorted({0, len(rows) // 2, len(rows) - 1})[:ROWS] if rows else []
    return tuple(
        SelfTestRow(problem=rows[place].problem.text, steps=rows[place].steps) for place in places
    )


def save_step_model(folder: Path | str, model: Scores, card: PrmCard) -> PrmCard:
    """Publish a checkpoint, whole or not at all; the card with its scores comes back.

    The folder loads with ``AutoModelForTokenClassification`` (or ``AutoModelForCausalLM`` for
    ``two_logits``) and ``AutoTokenizer``. Adapters are merged. One of that name is replaced.

    Args:
        folder: where it will lie.
        model: trained.
        card: its self-test rows need no scores yet.

    Raises:
        DataError: the model gives scores that are no numbers.
    """
    card = with_scores(model, card)
    with publish(Path(folder), replace=True) as part:
        part.mkdir()
        write_policy(part, Policy(model.model, model.tokenizer))
        write_card(part, card)
    return card


def write_card(folder: Path, card: PrmCard) -> None:
    """Put ``prm.json`` into a folder that is there."""
    write_json(folder / CARD, card.model_dump(mode="json"))


def load_step_model(
    path: Path | str, dtype: Dtype = "float32", device: str = "auto"
) -> tuple[StepModel, PrmCard]:
    """A trained step model and its card; its three rows were scored again and agree.

    Args:
        path: a folder that `save_step_model` or ``stepmark prm train`` wrote.
        dtype: in which it computes; scores in bfloat16 agree to about 0.02.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Raises:
        SetupError: there is no such folder, no ``prm.json``, or a weight is missing.
        RunError: the card cannot be read, is of an outcome model, or the scores differ.
    """
    card = read_card(path)
    if card.kind != "process" or card.head == "reward":
        raise RunError(
            f"{str(path)!r} holds an outcome reward model, which gives a solution one number and "
            "its steps none. Load it with stepmark.prm.load_outcome_model."
        )
    model = trained_model(str(path), card.head, card.tokens, dtype, device)
    check_self_test(card, scores_of(model, card), str(path), exact=dtype == "float32")
    return model, card


def read_card(path: Path | str) -> PrmCard:
    """The card of a checkpoint.

    Raises:
        SetupError: there is no ``prm.json``.
        RunError: it is not one that this version reads.
    """
    place = Path(path).expanduser() / CARD
    if not place.is_file():
        inside = place.parent / "checkpoints"
        where = f"{inside}/final" if inside.is_dir() else "RUN/checkpoints/final"
        raise SetupError(
            f"{str(path)!r} holds no {CARD}, so it is no reward model of Stepmark. Name a folder "
            f"that stepmark prm train or rm train wrote, such as {where}; models of other "
            f"projects have adapters.\n    ls {inside if inside.is_dir() else path}"
        )
    try:
        return PrmCard.model_validate_json(place.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        first = " ".join(str(error).split())
        raise RunError(
            f"{str(place)!r} cannot be read: {first:.300}. It was altered, or written by a newer "
            "version. Restore it, or install the version that wrote it."
        ) from error


def with_scores(model: Scores, card: PrmCard) -> PrmCard:
    """The card with the scores that a model gives its rows now."""
    found = scores_of(model, card)
    rows = [
        row.model_copy(update={"scores": scores})
        for row, scores in zip(card.self_test, found, strict=True)
    ]
    return card.model_copy(
        update={"self_test": tuple(rows), "self_test_dtype": _dtype_of(model.model)}
    )


def _dtype_of(model: Any) -> str:
    """The coarsest type among its weights."""
    found = {str(weight.dtype).removeprefix("torch.") for weight in model.parameters()}
    return next((name for name in ("bfloat16", "float16") if name in found), "float32")


def scores_of(model: Scores, card: PrmCard) -> list[tuple[float, ...]]:
    """What a model says of the self-test rows of a card."""
    encoder = StepEncoder(model.tokenizer, card.encoding)
    encoded = [encoder.encode(Problem("self-test", r.problem, ""), r.steps) for r in card.self_test]
    return model.step_probabilities(encoded)


def check_self_test(
    card: PrmCard, found: Sequence[Sequence[float]], path: str, *, exact: bool
) -> None:
    """Refuse a model that scores the rows of its card otherwise than when it was saved.

    Args:
        card: holds rows and scores.
        found: the scores that the model gives now.
        path: of the checkpoint, for the message.
        exact: whether it computes in float32 now. Where it does not, or did not when it was saved,
            the bound is that of bfloat16.

    Raises:
        RunError: the message names row, step, both scores and the tolerance.
    """
    both = exact and card.self_test_dtype == "float32"
    allowed = SCORES_FLOAT32 if both else SCORES_BFLOAT16
    for number, (row, scores) in enumerate(zip(card.self_test, found, strict=True), 1):
        if len(row.scores) != len(scores):
            raise RunError(
                f"The self-test of {path!r} fails: row {number} has {len(scores)} scored steps and "
                f"had {len(row.scores)} when it was saved. Tokenizer or prm.json were altered; "
                "restore them."
            )
        for step, (was, now) in enumerate(zip(row.scores, scores, strict=True), 1):
            if not abs(was - now) <= allowed:
                raise RunError(
                    f"The self-test of {path!r} fails: row {number}, step {step} scored {was:.6f} "
                    f"when it was saved and {now:.6f} now (allowed: {allowed:g}). Weights, "
                    "tokenizer or prm.json were altered since; restore them, or train again."
                )


def card_of(model: StepModel, **fields: Any) -> PrmCard:
    """A card for a step model: head and tokens are the model's, the rest is given."""
    known: Mapping[str, Any] = {"head": model.head, "tokens": model.tokens}
    return PrmCard(**{**known, **fields})
