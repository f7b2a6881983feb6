"""Step scorers by name: the registry, and how a reference becomes a scorer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from stepmark.errors import ConfigError, did_you_mean
from stepmark.protocols import StepScorer
from stepmark.registry import Reference, Registry
from stepmark.types import StepItem, StepScores

from .steps import Span, split_steps

__all__ = [
    "FunctionScorer",
    "check_scorer_columns",
    "check_scores_steps",
    "load_scorer",
    "scorers",
    "scores_of_solution",
    "scores_whole",
]

GIVEN = ("problem", "steps")
"""What a function that scores steps may ask for by name."""

scorers: Registry[Any] = Registry("scorer", "stepmark.scorers")
"""The known step scorers: classes, factories, finished scorers or plain functions."""


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """A step scorer made of ``def f(steps): ...`` or ``def f(problem, steps): ...``.

    The function gives one score in [0, 1] per step; a bool is a score too, None is none.

    Args:
        name: what it is called in keys and messages.
        function: takes ``steps``, their texts, and ``problem``, a `Problem`, if it asks for it.
        splitter: how a text is divided; see `stepmark.prm.SPLITTERS`.
    """

    name: str
    function: Callable[..., Any]
    splitter: str = "newline"

    @property
    def key(self) -> str:
        """The name, with a digest of the function's code and of the splitter."""
        try:
            text = inspect.getsource(self.function)
        except (OSError, TypeError):  # built in a shell, or no Python function
            text = f"{getattr(self.function, '__module__', '')}:{self.name}"
        digest = blake2b(f"{text} {self.splitter}".encode(), digest_size=4).hexdigest()
        return f"{self.name}@{digest}"

    def segment(self, text: str) -> tuple[Span, ...]:
        """The steps of a text as the splitter sees them."""
        return split_steps(text, self.splitter)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """What the function says of each item."""
        wanted, key = inspect.signature(self.function).parameters, self.key
        found: list[StepScores] = []
        for item in items:
            given = {"problem": item.problem, "steps": item.steps}
            scores = self.function(**{name: given[name] for name in wanted})
            numbers = tuple(None if score is None else float(score) for score in scores)
            found.append(StepScores(numbers, key))
        return found


def load_scorer(reference: str | Mapping[str, Any] | Reference | StepScorer) -> StepScorer:
    """The step scorer that a reference stands for.

    Args:
        reference: ``arith-steps``, ``name?key=value``, a table with ``name``, the folder or hub id
            of a trained reward model, ``package.module:attr``, ``file.py:attr``, or a scorer. The
            attribute may be a scorer, a class or factory that makes one, or a function such as
            ``f(problem, steps)``.

    Raises:
        UnknownNameError: nothing is known under that name.
        SetupError: a folder holds no reward model of ours, or the hub has none of that name.
        ConfigError: a file or module fails to load, a setting is not known, or what was found is
            no step scorer.

    >>> load_scorer("arith-steps").key
    'arith-steps@1'
    """
    if not isinstance(reference, str | Mapping | Reference):
        return _checked(reference, type(reference).__name__)
    wanted = Reference.parse(reference)
    if wanted.name.endswith(".py"):
        raise ConfigError(
            f"{wanted.name!r} is a file, and a scorer is a function or class in it. "
            f"Write {wanted.name}:NAME, such as {wanted.name}:my_scorer."
        )
    short = wanted.name.rpartition(":")[2]
    target: Any = _checkpoint(wanted.name) or scorers.load(wanted.name)
    if isinstance(target, StepScorer) and not isinstance(target, type):
        if wanted.settings:
            raise ConfigError(
                f"The scorer {short!r} is a finished object and takes no settings; got "
                f"{', '.join(wanted.settings)}. Name its class, or a function that makes one."
            )
        return target
    if not callable(target):
        return _checked(target, short)
    parameters = list(inspect.signature(target).parameters)
    if "steps" in parameters and not isinstance(target, type):
        _check_settings(_function_settings, short, wanted.settings)
        if unknown := [name for name in parameters if name not in GIVEN]:
            raise ConfigError(
                f"The scorer {short!r} asks for {unknown[0]!r}; a function that scores steps may "
                f"ask for {' and '.join(GIVEN)} only. The problem has gold, solution and meta."
            )
        made = FunctionScorer(short, target, **wanted.settings)
        made.segment("")
        return made
    _check_settings(target, short, wanted.settings)
    return _checked(target(**wanted.settings), short)


def _checkpoint(name: str) -> Callable[..., StepScorer] | None:
    """What makes the scorer of a checkpoint, where a name is a folder or looks like a hub id."""
    if ":" in name or name in scorers.names():
        return None
    if "/" not in name and not Path(name).expanduser().is_dir():
        return None
    from .checkpoint import read_card
    from .outcome_scorer import OutcomeScorer
    from .places import folder_of
    from .scorer import PrmScorer

    is_outcome = read_card(folder_of(name)).kind == "outcome"
    return partial(OutcomeScorer if is_outcome else PrmScorer, name)


def _function_settings(splitter: str = "newline") -> None:
    """The settings that a function as a scorer takes."""


def _check_settings(factory: Callable[..., Any], name: str, settings: Mapping[str, Any]) -> None:
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        known = list(inspect.signature(factory).parameters)
        unknown = next((setting for setting in settings if setting not in known), "")
        said = [
            f"The scorer {name!r} with {dict(settings)}: {error}.",
            did_you_mean(unknown, known),
            f"Its settings: {', '.join(known) or 'none'}.",
        ]
        raise ConfigError(" ".join(filter(None, said))) from error


def _checked(made: Any, name: str) -> StepScorer:
    if isinstance(made, StepScorer) and not isinstance(made, type):
        return made
    raise ConfigError(
        f"{name!r} is {made!r:.80}, which is no step scorer. A scorer has key, segment(text) and "
        "score(items), or is a function such as def f(problem, steps): ..."
    )


def scores_whole(scorer: StepScorer) -> bool:
    """Whether a scorer marks whole solutions: a text is one step, and earlier steps have no score.

    >>> scores_whole(load_scorer("arith-steps"))
    False
    """
    return bool(getattr(scorer, "scores_whole", False))


def scores_of_solution(
    scorer: StepScorer, scores: Sequence[float | None]
) -> tuple[float | None, ...]:
    """Of the scores of all steps those that are to be aggregated.

    They are all of them; of a scorer of whole solutions the last, which stands for all.
    """
    return tuple(scores)[-1 if scores_whole(scorer) else 0 :]


def check_scores_steps(scorer: StepScorer, label: str) -> None:
    """Refuse a scorer of whole solutions where steps are told apart.

    Raises:
        ConfigError: names the verb that takes it.
    """
    if scores_whole(scorer):
        raise ConfigError(
            f"{label!r} is an outcome reward model, which scores whole solutions: of their steps, "
            "and of first errors, it says nothing. Examine it on rows with final_correct:\n"
            f"    stepmark rm eval {getattr(scorer, 'path', label)} --data ROWS.jsonl"
        )


def check_scorer_columns(scorer: StepScorer, columns: Sequence[str], task: str) -> None:
    """Refuse a scorer that needs a column which the data does not have.

    Raises:
        ConfigError: names the column, and those that are there.
    """
    for name in sorted(set(getattr(scorer, "columns", ())) - set(columns)):
        raise ConfigError(
            f"The scorer {scorer.key!r} needs the column {name!r}, which {task!r} does not have. "
            f"Columns: {', '.join(columns) or 'none'}. Choose another scorer or another task."
        )
