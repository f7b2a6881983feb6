"""Labels of steps from roll-outs (Math-Shepherd, OmegaPRM), with any engine and any verifier."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from stepmark.errors import ConfigError
from stepmark.prm.formats.balance import label_word
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.store import SampleStore
from stepmark.types import Item

from .asking import asks_root, most_asked, prefixes_without_room, refusal, upper_bound
from .counts import Cost, Counts
from .estimates import AnnotatedSteps, StepEstimate, StepReason, labelled_row
from .items import Prefix, ToAnnotate
from .plans import Outcomes, Wanted, plan_for
from .rollouts import Rollouts
from .settings import AnnotationSettings

__all__ = ["Annotator"]

Found = list[StepEstimate] | str
"""One estimate per step, or why the solution is left out."""
Progress = Callable[[int], None]
"""Called with the solutions that are done, labelled or left out."""


class Annotator:
    """Labels the steps of solutions by whether the answer can still be reached from them.

    Solutions are worked on ``at_once`` at a time: what their plans ask for goes to the engine in
    one call, so that it can share what the prefixes have in common. Labels do not depend on it.

    Args:
        engine: the completer. It should be at least as good as the policy that wrote the solutions.
        verifier: marks roll-outs, and solutions without a verdict.
        settings: see `AnnotationSettings`.
        tokenizer: the engine's, which is asked for its own when this is None.
        completer: names the engine's weights, such as a digest or policy version.
        store: where roll-outs and their verdicts are kept, and found again by a later process.
        budget: tokens that may be *sampled* for roll-outs; what will not fit is left out, and
            counted as ``budget``. Those found in the store count as when they were drawn.
        at_once: solutions at a time.
        max_error_share: largest share of error verdicts, in [0, 1].
        on_left_out: called with a solution that is not labelled, and why.
        on_progress: see `Progress`.

    Raises:
        ConfigError: no tokenizer is given and the engine has none, or a budget below 1.
    """

    def __init__(
        self,
        engine: Engine,
        verifier: OutcomeVerifier,
        settings: AnnotationSettings | None = None,
        *,
        tokenizer: Any = None,
        completer: str = "",
        store: SampleStore | None = None,
        budget: int | None = None,
        at_once: int = 64,
        max_error_share: float = 0.1,
        on_left_out: Callable[[ToAnnotate, str], None] | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.tokenizer = getattr(engine, "tokenizer", None) if tokenizer is None else tokenizer
        if self.tokenizer is None:
            raise ConfigError(
                f"The engine {type(engine).__name__} has no tokenizer of its own, and none is "
                "given; texts are made of ids with it. Give tokenizer=."
            )
        for name, value in (("budget", budget), ("at_once", at_once)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more.")
        self.engine, self.verifier = engine, verifier
        self.settings = settings or AnnotationSettings()
        self.completer, self.budget, self.at_once = completer, budget, at_once
        self.counts = Counts()
        self.rollouts = Rollouts(
            engine,
            verifier,
            self.tokenizer,
            self.settings,
            completer=completer,
            store=store,
            max_error_share=max_error_share,
        )
        self.on_left_out = on_left_out
        self.on_progress = on_progress
        self._touched: dict[str, int] = {}
        self._rollouts = self._sampled = 0

    @property
    def about(self) -> dict[str, Any]:
        """What made the labels, as it stands in the meta of every row."""
        words = self.settings.to_row()
        return {
            "method": words["method"],
            "completer": self.completer,
            "verifier": self.verifier.key,
            "settings": {key: value for key, value in words.items() if key != "method"},
        }

    @property
    def max_length(self) -> int | None:
        """Tokens that the engine's model can hold, where it says so."""
        return getattr(self.engine, "max_length", None)

    def estimate(self, items: Iterable[ToAnnotate]) -> Cost:
        """What annotating these solutions takes at most, see `upper_bound`."""
        return upper_bound(items, self.settings, self.max_length)

    def annotate(self, items: Iterable[ToAnnotate]) -> Iterator[AnnotatedSteps]:
        """Every solution that can be labelled, in the order of the items.

        Raises:
            EngineError: the engine gave fewer roll-outs than asked; what it gave is kept.
            VerifierError: more error verdicts than allowed.
        """
        left, waiting = iter(items), list[ToAnnotate]()
        done, is_spent = 0, False
        while True:
            waiting += self._judged(list(islice(left, self.at_once - len(waiting))))
            if not waiting:
                return
            block = waiting if is_spent else waiting[: self._affordable(waiting)]
            is_spent = is_spent or not block
            found: list[Found] = ["budget"] * len(block) if is_spent else self._block(block)
            waiting = waiting[len(block) :]
            for item, one in zip(block, found, strict=True):
                done += 1
                if isinstance(one, str):
                    self.counts.left_out[one] += 1
                    if self.on_left_out:
                        self.on_left_out(item, one)
                else:
                    yield self._labelled(item, one)
            if self.on_progress:
                self.on_progress(done)

    def _judged(self, items: Sequence[ToAnnotate]) -> list[ToAnnotate]:
        """The solutions with their own verdicts: those that have none are marked."""
        asked = [item for item in items if item.verdict is None]
        verdicts = iter(
            self.verifier(
                [Item(i.prompt.problem, i.text, i.prompt.text, len(i.ids)) for i in asked]
            )
            if asked
            else ()
        )
        return [
            replace(item, verdict=next(verdicts)) if item.verdict is None else item
            for item in items
        ]

    def _affordable(self, items: Sequence[ToAnnotate]) -> int:
        """How many of the solutions cannot exceed the budget together, from the first one on."""
        if self.budget is None:
            return len(items)
        room = self.budget - self._sampled
        for place, item in enumerate(items):
            most = most_asked(item, self.settings, self.max_length)
            room -= sum(most.values()) * self.settings.sampling.max_tokens
            if room < 0:
                return place
        return len(items)

    def _plan(self, item: ToAnnotate) -> Generator[Wanted, Mapping[int, Outcomes], Found]:
        """The plan of a solution, after the question whether it needs one."""
        if (why := refusal(item, self.settings)) is not None:
            return why
        no_room = prefixes_without_room(item, self.settings, self.max_length)
        if 0 in no_room:
            return str(StepReason.NO_ROOM)
        if asks_root(item, self.settings):
            given = yield {0: self.settings.rollouts}
            known = [outcome for outcome in given[0] if outcome is not None]
            if sum(known) in (0, len(known)):
                return "settled"
        found = yield from plan_for(
            len(item.steps),
            None if item.verdict is None else item.verdict.correct,
            self.settings,
            is_finished=item.finish == "stop",
            no_room=no_room,
        )
        if all(estimate.label is None for estimate in found):
            return str(found[0].reason)
        return found

    def _block(self, items: Sequence[ToAnnotate]) -> list[Found]:
        """Run the plans of a block side by side: each wave of questions is one call of the engine.

        Every plan is a generator; what one of them asks for depends on outcomes alone.
        """
        plans = [self._plan(item) for item in items]
        found: dict[int, Found] = {}
        given: dict[int, Mapping[int, Outcomes] | None] = dict.fromkeys(range(len(items)))
        while given:
            asked: dict[int, list[tuple[int, Prefix, int]]] = {}
            for place, answer in given.items():
                try:
                    wanted = next(plans[place]) if answer is None else plans[place].send(answer)
                except StopIteration as end:
                    found[place] = end.value
                    continue
                asked[place] = [(k, items[place].prefix(k), n) for k, n in wanted.items()]
            self.rollouts.draw((prefix, n) for some in asked.values() for _, prefix, n in some)
            given = {
                place: {k: self._outcomes(prefix, n) for k, prefix, n in some}
                for place, some in asked.items()
            }
        for place, item in enumerate(items):
            if not isinstance(found[place], str):
                self._count_naive(item)
        return [found[place] for place in range(len(items))]

    def _outcomes(self, prefix: Prefix, upto: int) -> list[bool | None]:
        drawn = self.rollouts.of(prefix, upto)
        counted = self._touched.get(prefix.name, 0)
        self._touched[prefix.name] = max(counted, upto)
        self._rollouts += max(upto - counted, 0)
        self._sampled += sum(one.tokens for one in drawn[counted:])
        self.counts.spent = Cost(self._rollouts, self._sampled, self.rollouts.prefilled)
        return [one.outcome for one in drawn]

    def _count_naive(self, item: ToAnnotate) -> None:
        n = self.settings.rollouts
        no_room = prefixes_without_room(item, self.settings, self.max_length)
        for steps in (k for k in range(1, len(item.steps)) if k not in no_room):
            prefix = item.prefix(steps)
            drawn = self.rollouts.of(prefix, self._touched.get(prefix.name, 0))
            mean = sum(one.tokens for one in drawn) / max(len(drawn), 1)
            read = n * len(prefix.all_ids)
            self.counts.alone += Cost(n if drawn else 0, round(n * mean), read)
            self.counts.undrawn += 0 if drawn else n

    def _labelled(self, item: ToAnnotate, estimates: list[StepEstimate]) -> AnnotatedSteps:
        row = labelled_row(item, estimates, self.settings.labels, self.about)
        self.counts.solutions += 1
        self.counts.labels.update(label_word(label) for label in row.labels)
        return AnnotatedSteps(item, row, tuple(estimates))
