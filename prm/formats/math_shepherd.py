"""Math-Shepherd (arXiv:2312.08935): steps that end in the tag ``ки``, labelled by rollouts.

Two shapes are published. In the first, ``label`` is ``input`` with ``+`` or ``-`` in the place of
every tag; the two texts are aligned, so that signs within the mathematics are never read as labels.
In the second, ``value`` is a list of ``+`` and ``-``, or of numbers.

A label says whether the answer can still be *reached* from here: ``+`` if at least one of eight
completions ended in it (hard estimation), a number for their share (soft estimation). It does not
say that the step is right: a later step may be ``+`` again after a ``-``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelKind, LabelledSteps, Problem

from .cells import choice_of, label_list, need_text, other_columns
from .marked import StepMark, Tail, labelled_head
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id

__all__ = ["MathShepherd"]

Row = Mapping[str, Any]
Labels = tuple[float | None, ...]
ANSWER = "The answer is"


class MathShepherd:
    """The format ``math-shepherd``: columns input, and label or value.

    Args:
        tag: the text that ends a step.
        step_mark: the text that begins the first step, once in the input; several to be tried in
            order are divided by ``|``, such as ``Step 1:|step 1:``.
        stray_tags: what becomes of a row with a tag before the first step: ``reject`` it, or
            ``drop`` the tag and its label, which speaks of no step.
        tail: what becomes of text after the last tag: ``reject`` the row, ``mask`` (a step without
            label) or ``drop`` the text.
    """

    name: ClassVar[str] = "math-shepherd"

    def __init__(
        self,
        tag: str = "ки",
        step_mark: str = "Step 1:",
        stray_tags: str = "reject",
        tail: str = "reject",
    ) -> None:
        choice_of("stray_tags", stray_tags, ("reject", "drop"))
        self.tag, self.step_mark, self.stray_tags, self.tail = tag, step_mark, stray_tags, tail
        self._mark, self._tail = StepMark(step_mark), Tail(tail)

    @staticmethod
    def matches(row: Row) -> bool:
        """An input as text, beside a label as text or a value as a list."""
        labelled = isinstance(row.get("label"), str) or isinstance(row.get("value"), list)
        return isinstance(row.get("input"), str) and labelled

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        text = need_text(row, "input")
        chunks = text.split(self.tag)
        labels, kind = self._labels(row, chunks)
        problem, steps, labels = self._divided(chunks, labels)
        steps, labels = self._tail.apply(steps, labels, chunks[-1])
        last = labels[-1] if labels else None
        is_answer = kind == "hard" and last is not None and ANSWER in steps[-1]
        yield LabelledSteps(
            Problem(problem_id(problem), problem, None),
            steps,
            labels,
            kind,
            origin="rollouts",
            source=self.name,
            # With the answer written down there is nothing left to complete: the label is its mark.
            final_correct=bool(last) if is_answer else None,
            meta=other_columns(row, "input", "label", "value"),
        )

    def write(self, labelled: LabelledSteps) -> dict[str, Any]:
        """The published row: hard labels in the first shape, soft ones in the second.

        Steps are numbered (``Step 2: ...``) where they do not begin so themselves: the layout finds
        the first one by its mark. Steps after the last label are cut off: it knows no masked one.

        Raises:
            Rejected: no label, one before the last is missing, or a text holds the tag or the mark.
        """
        steps, labels = labelled_head(labelled, "Math-Shepherd")
        lines = [f"{self._numbered(step, at)} {self.tag}" for at, step in enumerate(steps, 1)]
        text = f"{labelled.problem.text.strip()} " + "\n".join(lines)
        chunks = text.split(self.tag)
        if len(chunks) != len(lines) + 1:
            raise Rejected(
                RejectReason.STRAY_TAG, f"problem or steps hold the tag {self.tag!r} themselves"
            )
        self._mark.find(text)
        task = str(labelled.meta.get("task") or labelled.problem.task)
        if labelled.kind == "soft":
            return {"input": text, "value": [float(label) for label in labels], "task": task}
        signs = ["+" if label else "-" for label in labels]
        marked = "".join(map("".join, zip(chunks, [*signs, ""], strict=True)))
        return {"input": text, "label": marked, "task": task}

    def _numbered(self, step: str, number: int) -> str:
        mark = self._mark.marks[0].replace("1", str(number))
        return step.strip() if step.strip().startswith(mark) else f"{mark} {step.strip()}"

    def _labels(self, row: Row, chunks: list[str]) -> tuple[Labels, LabelKind]:
        """One label a tag, in the order of the tags."""
        if row.get("value") is not None:  # tables hold both columns, one of them empty
            return label_list(row["value"], len(chunks) - 1, marks=True, estimates=True)
        return aligned_marks(chunks, need_text(row, "label")), "hard"

    def _divided(self, chunks: list[str], labels: Labels) -> tuple[str, tuple[str, ...], Labels]:
        """Problem, steps and labels; the chunk with the step mark holds problem and first step."""
        cut = self._mark.find(self.tag.join(chunks))
        before = 0
        while cut >= len(chunks[before]):
            cut -= len(chunks[before]) + len(self.tag)
            before += 1
        if before == len(chunks) - 1:
            raise Rejected(RejectReason.NO_LABELS, f"no {self.tag!r} follows the first step")
        if before and self.stray_tags == "reject":
            raise Rejected(
                RejectReason.STRAY_TAG,
                f"{before} tag(s) before the first step, after {chunks[0][-40:]!r}; "
                "stray_tags=drop leaves out tag and label",
            )
        problem = "".join(chunks[:before]) + chunks[before][:cut]
        steps = [chunks[before][cut:], *chunks[before + 1 :]][: len(chunks) - 1 - before]
        return problem.strip(), tuple(step.strip() for step in steps), labels[before:]


def aligned_marks(chunks: list[str], marked: str) -> Labels:
    """The labels in a text that is the joined chunks with ``+`` or ``-`` between them.

    Raises:
        Rejected: it is another text, or holds another sign there.

    >>> aligned_marks(["1+1=2 ", " 2-1=1 ", ""], "1+1=2 + 2-1=1 -")
    (1.0, 0.0)
    """
    at, labels = 0, list[float]()
    for index, chunk in enumerate(chunks):
        last = index == len(chunks) - 1
        sign = "" if last else marked[at + len(chunk) : at + len(chunk) + 1]
        if not marked.startswith(chunk, at) or not (last or sign in ("+", "-")):
            raise Rejected(
                RejectReason.NOT_ALIGNED,
                f"label departs from input in piece {index + 1} of {len(chunks)}, near "
                f"{marked[at : at + 40]!r}",
            )
        at += len(chunk) + 1
        if not last:
            labels.append(1.0 if sign == "+" else 0.0)
    if at - 1 != len(marked):
        raise Rejected(
            RejectReason.NOT_ALIGNED, f"label goes on after input ends: {marked[at - 1 :][:40]!r}"
        )
    return tuple(labels)
