"""`http`: steps scored by a service, such as a reward model behind a server of its own.

Two ways to ask. ``api = "json"`` posts ``{"problem": ..., "steps": [...]}`` and reads
``{"scores": [...]}``. ``api = "chat"`` posts to an OpenAI-like ``.../chat/completions``: a model is
asked for one number per step, and its reply must hold the same object.

What can pass is tried again with a growing pause, until the deadline of the solution: no
connection, one that breaks off, a time-out, the statuses 408, 425, 429 and 5xx, and a chat model's
reply that does not hold one score per step. A solution that
could not be scored abstains (None for all of its steps, and ``failed``): it is asked again the next
time. When more of them abstain than ``max_error_share`` allows, the run is refused; what was scored
until then is remembered. What will not pass is refused at once: another status, or a service's
reply that is no list of one score per step.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar, Literal

from stepmark.errors import ConfigError, DataError, Error, VerifierError
from stepmark.types import StepItem, StepScores

from .cache import ScoreCache, Scores, item_digest
from .steps import Span, split_steps

__all__ = ["HttpScorer"]

log = logging.getLogger(__name__)

PASSING = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses that are worth another try."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
FLOOR_S = 0.05
"""Time that a request gets at the least, at the end of a deadline."""

INSTRUCTION = (
    "You check solutions of mathematical problems step by step. For every step give the "
    "probability that it is right, given the steps before it. Answer with JSON only: "
    '{"scores": [one number from 0 to 1 per step]}.'
)


class Passing(Exception):
    """A failure that may pass, and how long the service asks to wait."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


def _given(found: Scores | None, item: StepItem, key: str) -> StepScores:
    if found is None:
        return StepScores((None,) * len(item.steps), key, failed=True)
    return StepScores(found, key)


def _is_score(value: Any) -> bool:
    """Whether it is a number in [0, 1]; NaN and numbers beyond any float are none."""
    return isinstance(value, int | float) and 0 <= value <= 1


class HttpScorer:
    """Scores steps by asking a service; see above.

    Args:
        url: where to post.
        api: ``json`` or ``chat``.
        model: the name of the model, with ``api = "chat"``.
        version: enters the key: change it when the model behind the address changes.
        splitter: how a text is divided; see `stepmark.prm.SPLITTERS`.
        deadline_s: for one solution, all tries together.
        tries: requests for one solution at most.
        workers: requests at a time.
        max_error_share: share of the solutions of one call that may abstain.
        token_env: name of an environment variable that holds a bearer token.
        cache: folder that keeps scores between processes; None keeps them in memory.

    Raises:
        ConfigError: the address, a number or the api is not allowed.
    """

    aggregation: str = "min"
    columns: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        url: str,
        api: Literal["json", "chat"] = "json",
        *,
        model: str = "",
        version: str = "1",
        splitter: str = "newline",
        deadline_s: float = 60.0,
        tries: int = 4,
        workers: int = 4,
        max_error_share: float = 0.1,
        token_env: str = "",
        cache: str | Path | None = None,
    ) -> None:
        self.url, self.api, self.model, self.splitter = str(url), api, model, splitter
        self.deadline_s, self.tries, self.workers = deadline_s, tries, workers
        self.max_error_share, self.token_env = max_error_share, token_env
        self._check()
        split_steps("", splitter)
        shaping = repr((self.url, api, model, str(version), splitter)).encode()
        self.key = f"http@{blake2b(shaping, digest_size=4).hexdigest()}"
        self.cache = ScoreCache(self.key, cache)

    def _check(self) -> None:
        if not re.match(r"https?://[^/\s]+", self.url):
            raise ConfigError(
                f"The scorer http has url = {self.url!r}; an address begins with http:// or "
                "https://, such as http://localhost:8000/score."
            )
        if self.api not in ("json", "chat") or (self.api == "chat") != bool(self.model):
            raise ConfigError(
                f"The scorer http has api = {self.api!r} and model = {self.model!r}. The api is "
                "'json' or 'chat'; a model is named with 'chat', and only there."
            )
        for name in ("deadline_s", "tries", "workers"):
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"The scorer http has {name} = {getattr(self, name)!r}; it must be above 0."
                )

    def segment(self, text: str) -> tuple[Span, ...]:
        """The steps of a text as the splitter sees them."""
        return split_steps(text, self.splitter)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """One score per step; None for all steps of a solution that could not be scored.

        Raises:
            VerifierError: more solutions than allowed could not be scored, or the service refuses.
            DataError: a reply is no list of one score in [0, 1] per step.
        """
        digests = [item_digest(item) for item in items]
        new = {
            digest: item
            for digest, item in zip(digests, items, strict=True)
            if self.cache.get(digest) is None
        }
        known = {digest: self.cache.get(digest) for digest in digests}
        with ThreadPoolExecutor(self.workers) as pool:
            found = dict(zip(new, pool.map(self._asked, new.values()), strict=True))
        failed = [row for row in found.values() if isinstance(row, Passing)]
        good = {digest: row for digest, row in found.items() if not isinstance(row, Exception)}
        self.cache.add(good)
        for row in found.values():
            if isinstance(row, Error):
                raise row
        if len(failed) > self.max_error_share * max(1, len(items)):
            raise VerifierError(
                f"The service {self.url!r} did not score {len(failed)} of {len(items)} solutions: "
                f"{failed[0]}. At most {self.max_error_share:.0%} may fail. See that it runs, or "
                "raise deadline_s or max_error_share."
            )
        if failed:
            log.warning(
                "%s: %d of %d solutions were not scored: %s",
                self.url, len(failed), len(items), failed[0],
            )  # fmt: skip
        known |= good
        return [
            _given(known.get(digest), item, self.key)
            for digest, item in zip(digests, items, strict=True)
        ]

    def _asked(self, item: StepItem) -> Scores | Passing | Error:
        """Scores of a solution, or why it has none: others are remembered before that is raised."""
        try:
            return self._try(item)
        except Error as why:
            return why

    def _try(self, item: StepItem) -> Scores | Passing:
        """Scores of a solution, or why it has none after all tries."""
        end, pause = time.monotonic() + self.deadline_s, FIRST_PAUSE_S
        for number in range(1, self.tries + 1):
            try:
                return self._scores_in(self._post(item, max(FLOOR_S, end - time.monotonic())), item)
            except Passing as why:
                pause = max(pause, why.wait_s)
                if number == self.tries or time.monotonic() + pause >= end:
                    return why
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
        return Passing("it was not asked")

    def _post(self, item: StepItem, timeout_s: float) -> Any:
        """What the service replies, as JSON."""
        headers = {"Content-Type": "application/json"}
        if self.token_env:
            headers["Authorization"] = f"Bearer {os.environ.get(self.token_env, '')}"
        body = json.dumps(self._question(item)).encode()
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                text = reply.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(300).decode("utf-8", "replace")
            if error.code in PASSING:
                after = error.headers.get("Retry-After", "")
                wait_s = float(after) if after.isdigit() else 0.0
                raise Passing(f"status {error.code}", wait_s) from error
            raise VerifierError(
                f"The service {self.url!r} refuses with status {error.code}: {said!r}. Check the "
                "address, the api, the model and the token."
            ) from error
        except (OSError, HTTPException) as error:  # no connection, a time-out, half a reply
            raise Passing(f"{getattr(error, 'reason', error)!s:.200}") from error
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._unreadable(item, text.decode("utf-8", "replace")) from error

    def _question(self, item: StepItem) -> dict[str, Any]:
        asked = {"problem": item.problem.text, "steps": list(item.steps)}
        if self.api == "json":
            return asked
        messages = [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": json.dumps(asked, ensure_ascii=False)},
        ]
        return {"model": self.model, "messages": messages, "temperature": 0}

    def _scores_in(self, reply: Any, item: StepItem) -> Scores:
        found = reply
        if self.api == "chat":
            try:
                text = reply["choices"][0]["message"]["content"]
                found = json.loads(re.sub(r"^\s*```(?:json)?|```\s*$", "", text))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                # A model that does not keep to the form may do so the next time.
                raise Passing(f"a reply without scores ({str(reply)[:120]})") from error
        given = found.get("scores") if isinstance(found, dict) else None
        scores: list[Any] = given if isinstance(given, list) else []
        fits = len(scores) == len(item.steps)
        if fits and all(score is None or _is_score(score) for score in scores):
            return tuple(None if score is None else float(score) for score in scores)
        if self.api == "chat":
            raise Passing(f"a reply without a score for each of the steps ({str(found)[:120]})")
        raise self._unreadable(item, str(found))

    def _unreadable(self, item: StepItem, reply: str) -> DataError:
        return DataError(
            f"The service {self.url!r} replied {reply[:120]!r} for {len(item.steps)} steps of "
            f"{item.problem.id!r}; it must reply an object with scores, one number in [0, 1] or "
            "null per step. Mend the service, or name another address."
        )
