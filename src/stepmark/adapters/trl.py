"""A verifier as a reward function of TRL: ``GRPOTrainer(reward_funcs=[reward("math")])``.

A missing score (the gold or the verifier failed, not the completion) is None, which TRL leaves out
of the group's mean, with advantage 0. Versions, trainers and sums that count None as 0 are refused.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stepmark.errors import ConfigError, DataError, SetupError, did_you_mean
from stepmark.tasks.rows import GOLD_NAMES
from stepmark.types import Reason, Status, Verdict

from .marker import Marker, Row
from .references import VerifierLike, short_name
from .texts import completion_text, prompt_text, question_text

__all__ = ["AsyncReward", "Reward", "async_reward", "reward"]

log = logging.getLogger(__name__)

OLDEST = (1, 6)
"""Up to TRL 1.5, GRPO and RLOO take a completion without any reward as one with reward 0."""
OLDEST_ASYNC = (1, 14)
"""Up to TRL 1.13, objects whose ``__call__`` is async are called and never awaited."""
NOT_DATA = frozenset({"trainer_state", "log_extra", "log_metric", "environments", "completion_ids"})


def reward(
    verifier: VerifierLike,
    *,
    gold: str | None = None,
    name: str | None = None,
    abstain_score: float | None = None,
    max_error_share: float = 0.1,
) -> Reward:
    r"""A reward function for TRL's trainers that asks a verifier.

    Args:
        verifier: as `stepmark.verifiers.load_verifier` takes it: ``math``,
            ``math?units=require``, ``physics.py:units``, a function, a verifier.
        gold: the data's column of the gold; guessed among the usual names if not given.
        name: what TRL logs it under, as ``rewards/NAME/mean``; made from the verifier if not given.
        abstain_score: handed over instead of None where there is no score, for trainers that know
            no None.
        max_error_share: a run stops when more of the last hundred verdicts are errors; in [0, 1].

    Raises:
        ConfigError: the verifier does not load, or an argument is out of its range.
        UnknownNameError: nothing is known under that name.
        SetupError: the installed TRL counts None as 0, and ``abstain_score`` is not given.

    >>> mark = reward("math", gold="solution")
    >>> mark(prompts=["2+2?"] * 2, completions=["So it is 4.", "5"], solution=["4", "4"])
    [1.0, 0.0]
    """
    return Reward(verifier, gold, name, abstain_score, max_error_share)


def async_reward(
    verifier: VerifierLike,
    *,
    gold: str | None = None,
    name: str | None = None,
    abstain_score: float | None = None,
    max_error_share: float = 0.1,
) -> AsyncReward:
    """`reward` as a coroutine function: TRL awaits all of these at the same time.

    Worth it beside other async rewards (a judge behind an API); the marking itself runs in a
    thread and in worker processes.

    Raises:
        ConfigError: the verifier does not load, or an argument is out of its range.
        UnknownNameError: nothing is known under that name.
        SetupError: the installed TRL does not await objects, or counts None as 0.
    """
    _refuse_before(OLDEST_ASYNC, "does not await objects with an async __call__. Use reward(...)")
    return AsyncReward(verifier, gold, name, abstain_score, max_error_share)


class _TrlReward:
    """What both kinds of reward share: from columns to rows, from verdicts to rewards."""

    def __init__(
        self,
        verifier: VerifierLike,
        gold: str | None,
        name: str | None,
        abstain_score: float | None,
        max_error_share: float,
    ) -> None:
        if abstain_score is None:
            _refuse_before(OLDEST, "counts a missing score as 0. Give abstain_score to accept that")
        elif not math.isfinite(abstain_score):
            raise ConfigError(
                f"abstain_score is {abstain_score!r}; it must be a finite number, or None to leave "
                "rows without a score out."
            )
        self.__name__ = name or short_name(verifier)
        self.gold = gold
        self.abstain_score = abstain_score
        self.mark = Marker(verifier, self.__name__, max_error_share)
        self._announced = ""
        self._golds_checked = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__!r}, gold={self.gold!r})"

    def _rows(
        self, prompts: Sequence[Any], completions: Sequence[Any], given: Mapping[str, Any]
    ) -> list[Row]:
        columns = {
            name: values
            for name, values in given.items()
            if name not in NOT_DATA
            and isinstance(values, Sequence)
            and not isinstance(values, str)
            and len(values) == len(completions)
        }
        gold = self._gold_column(columns)
        ids = given.get("completion_ids") or []
        counts = [len(tokens) for tokens in ids] or [None] * len(completions)
        rows: list[Row] = []
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            cells = {name: values[index] for name, values in columns.items()}
            rows.append(
                Row(
                    completion_text(completion),
                    cells[gold] if gold is not None else None,
                    cells,
                    question_text(prompt),
                    prompt_text(prompt),
                    counts[index],
                )
            )
        return rows

    def _gold_column(self, columns: Mapping[str, Any]) -> str | None:
        """The column of the gold: the named one, or the only one with a usual name."""
        listed = ", ".join(columns) or "none"
        if self.gold is not None:
            if self.gold in columns:
                return self.gold
            hint = did_you_mean(self.gold, columns)
            raise DataError(
                f"The data have no column {self.gold!r} for the gold of the reward "
                f"{self.__name__!r}. {hint}{' ' if hint else ''}Columns: {listed} (TRL keeps "
                "'prompt' and 'completion' to itself). Name one: reward(..., gold=COLUMN)."
            )
        found = [name for name in GOLD_NAMES if name in columns]
        if len(found) > 1:
            raise ConfigError(
                f"Several columns may hold the gold of the reward {self.__name__!r}: "
                f"{', '.join(found)}. Choose one: reward(..., gold={found[0]!r})."
            )
        if found:
            self._announce(found[0])
        return found[0] if found else None

    def _rewards(
        self, verdicts: Sequence[Verdict], rows: Sequence[Row], given: Mapping[str, Any]
    ) -> list[float | None]:
        missing = [verdict for verdict in verdicts if verdict.score is None]
        if missing and all(verdict.reason == Reason.GOLD_MISSING for verdict in verdicts):
            self._refuse_empty_golds(rows)
        self._log(verdicts, given)
        return [self.abstain_score if v.score is None else v.score for v in verdicts]

    def _refuse_empty_golds(self, rows: Sequence[Row]) -> None:
        """No gold at all is a wrong setting; a gold that some rows lack is for the data to say."""
        columns = rows[0].columns
        if self.gold is None and not any(name in columns for name in GOLD_NAMES):
            raise DataError(
                f"The reward {self.__name__!r} compares with a gold, and no column has a name that "
                f"is known to hold it. Columns: {', '.join(columns) or 'none'} (TRL keeps 'prompt' "
                "and 'completion' to itself). Name one: reward(..., gold=COLUMN)."
            )

    def _check_golds(self, rows: Sequence[Row]) -> None:
        """On the first call: a column without a single readable gold is the wrong one."""
        from stepmark.evals import check_golds

        if self._golds_checked:
            return
        self._golds_checked = True
        golds = {row.gold for row in rows if isinstance(row.gold, str)}
        found = check_golds(self.mark.verifier, [(gold[:40], gold) for gold in sorted(golds)])
        if found is None or not found.bad:
            return
        if len(found.bad) == found.seen > 1:
            raise DataError(
                f"The reward {self.__name__!r} has no gold to compare with. {found} "
                "Name another column: reward(..., gold=COLUMN)."
            )
        log.warning("The reward %r: %s", self.__name__, found)

    def _check_trainer(self, given: Mapping[str, Any]) -> None:
        """Refuse a trainer that takes a missing score as 0, as far as can be seen from here."""
        if self.abstain_score is not None:
            return
        if "trainer_state" in given and "log_extra" not in given:
            raise SetupError(
                f"This trainer counts a missing score of the reward {self.__name__!r} as 0, as "
                "TRL's OnlineDPOTrainer and SDPOTrainer do. Use GRPOTrainer or RLOOTrainer, or "
                "accept a number in its place:\n    reward(..., abstain_score=0.0)"
            )
        trainer = getattr(given.get("log_extra"), "__self__", None)
        sums = getattr(trainer, "multi_objective_aggregation", "sum_then_normalize")
        others = len(getattr(trainer, "reward_funcs", ())) - 1
        if others > 0 and sums == "sum_then_normalize":
            raise ConfigError(
                f"Beside {others} other reward function(s), TRL adds a missing score of "
                f"{self.__name__!r} up as 0: a completion that nobody could mark would be punished."
                " Give GRPOConfig multi_objective_aggregation='normalize_then_sum', or one reward "
                "that combines the verifiers, or accept it: reward(..., abstain_score=0.0)."
            )

    def _log(self, verdicts: Sequence[Verdict], given: Mapping[str, Any]) -> None:
        log_extra, log_metric = given.get("log_extra"), given.get("log_metric")
        if log_extra is not None:
            log_extra(f"{self.__name__}/extracted", [verdict.extracted for verdict in verdicts])
            log_extra(f"{self.__name__}/reason", [str(verdict.reason) for verdict in verdicts])
        if log_metric is not None and verdicts:
            for word, status in (("abstained", Status.ABSTAIN), ("errors", Status.ERROR)):
                share = sum(verdict.status is status for verdict in verdicts) / len(verdicts)
                log_metric(f"rewards/{self.__name__}/{word}", share)

    def _announce(self, column: str) -> None:
        if self._announced != column:
            self._announced = column
            log.info("%s: gold from column %r", self.__name__, column)


class Reward(_TrlReward):
    """What `reward` makes: named, picklable, callable from any thread."""

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any
    ) -> list[float | None]:
        """One reward per completion; None where there is no score.

        Raises:
            DataError: the gold's column is not there or holds nothing that can be read, or a
                completion is no text.
            ConfigError: the verifier asks for a column that is not there, or several reward
                functions are added up and a missing score would count as 0.
            SetupError: the trainer counts None as 0.
            VerifierError: too many errors.
        """
        self._check_trainer(given)
        rows = self._rows(prompts, completions, given)
        self._check_golds(rows)
        return self._rewards(self.mark(rows), rows, given)


class AsyncReward(_TrlReward):
    """What `async_reward` makes: a `Reward` to await."""

    async def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **given: Any
    ) -> list[float | None]:
        """One reward per completion; None where there is no score.

        Raises:
            DataError: the gold's column is not there or holds nothing that can be read, or a
                completion is no text.
            ConfigError: the verifier asks for a column that is not there, or several reward
                functions are added up and a missing score would count as 0.
            SetupError: the trainer counts None as 0.
            VerifierError: too many errors.
        """
        self._check_trainer(given)
        rows = self._rows(prompts, completions, given)
        self._check_golds(rows)
        verdicts = await asyncio.to_thread(self.mark, rows)
        return self._rewards(verdicts, rows, given)


def _refuse_before(oldest: tuple[int, int], why: str) -> None:
    """Refuse an installed TRL that is too old; where there is none, nothing can go wrong yet."""
    try:
        installed = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        return
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if numbers < oldest:
        wanted = ".".join(map(str, oldest))
        raise SetupError(
            f"TRL {installed} is installed, and TRL before {wanted} {why}, or update it:\n"
            f"    pip install 'trl>={wanted}'"
        )
