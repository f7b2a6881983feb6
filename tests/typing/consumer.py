"""A user's own script, type-checked strictly against the public API by ``make check``."""

from __future__ import annotations

from collections.abc import Sequence

from stepmark import Item, OutcomeVerifier, Problem, Reason, Verdict
from stepmark.verifiers import load_verifier, verify


class LastLine:
    """A verifier written as a class, as a third party would."""

    key = "last-line@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [
            Verdict.marked(
                float(item.completion.splitlines()[-1:] == [item.problem.gold]), Reason.JUDGED
            )
            for item in items
        ]


def main() -> None:
    verdict: Verdict = verify(r"\boxed{3}", gold="3")
    score: float | None = verdict.score
    right: bool | None = verdict.correct
    checker: OutcomeVerifier = load_verifier("math?units=require")
    own: OutcomeVerifier = LastLine()
    problem = Problem("p/1", "1 + 2 = ?", "3")
    verdicts: list[Verdict] = checker([Item(problem, "3")]) + own([Item(problem, "3")])
    print(score, right, [v.reason for v in verdicts])


if __name__ == "__main__":
    main()
