r"""The verifier `choice`: the option that a completion chooses is the gold's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from stepmark.types import Item, Reason, Verdict

from .alternatives import HEDGE, LONGEST, Options, named, options_of, plain
from .extract import extract
from .limits import Unreadable
from .policy import STRICT, Policy
from .settings import PolicyName
from .shipped import ShippedVerifier, gold_of, shown

__all__ = ["Choice", "ChoiceVerifier", "choose"]

GoldIndex = Literal["none", "from_0", "from_1"]

TAIL_CHARS = 400
"""A choice after a phrase is looked for in this many characters."""
LAST_PHRASES = 20
"""So many phrases are tried, the last one first."""
PHRASE = re.compile(
    r"\b(?:answer|option|choice)s?\b(?:(?!\bnot\b|n't\b)[^.\n:=]){0,40}?"
    r"(?:\b(?:is|are|would be|should be|must be)\b|[:=])"
    r"|^[ \t>*_]{0,8}A[*_]{0,2}:|\b(?:choose|select|pick|go with)\b|答案[是为:：]"
    r"|\bit(?:['’]s| is| must be| should be)\b|\bréponse\b\s*(?::|est\b)",
    re.IGNORECASE | re.MULTILINE,
)
LEAD = re.compile(
    r"(?:[\s*_:：]|\b(?:definitely|clearly|simply|therefore|thus|just|most likely|indeed|surely"
    r"|for sure|option|choice|letter|the)\b)*",
    re.IGNORECASE,
)
STATED = re.compile(
    r"(?<![\w\\'])[(\[]?([A-Z])[)\]]?(?=\s+is\s+(?:the\s+)?"
    r"(?:(?:only|most|best|correct|right|final)\s+){0,2}"
    r"(?:correct|right|answer|option|choice)\b)"
)
CUT = re.compile(r"[,，;；—–]|\s-\s|[一-鿿]|\s\(|\s(?:not|non)\b")
RETHOUGHT = re.compile(r"[,;，；]?\s*(?:or|and|maybe|或|和)\s*[(\[]?[A-Z]\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a completion chooses: labels (none when it hedges), or None when it chooses nothing."""

    labels: frozenset[str] | None
    text: str | None
    """What was read, as written in the completion."""
    method: str
    """The rule that fired: ``boxed``, ``hash``, ``phrase``, ``whole`` or ``none``."""


@dataclass(frozen=True)
class ChoiceVerifier(ShippedVerifier):
    r"""Marks completions by the option that they choose.

    The choice is read from the last box or ``####``, else from the last phrase such as "the answer
    is (B)", "B is correct" or "Answer: B", else from a last line that is nothing but an option.
    An option is named by its letter, or by its text where the data has a column ``choices`` or
    ``options``. Letters inside prose are no options ("A triangle", "I think"), nor is "None of the
    above", unless that is an option's text. "A or B" chooses nothing. A gold of several letters
    ("A, C") wants all of them, in any order.

    Args:
        column: the column with the options; ``choices`` or ``options`` when empty.
        gold_index: how a gold such as 2 counts options, where it is no letter: ``none``,
            ``from_0`` (as MMLU has it) or ``from_1``.
        policy: where a choice may stand: ``lenient``, ``strict`` (a box or ``####`` only), or rules
            joined by ``+`` among ``boxed``, ``hash``, ``phrase``, ``whole`` (the last line).

    Raises:
        ConfigError: a setting has a value that is not allowed.

    >>> from stepmark.verifiers import verify
    >>> verify("The correct option is (B).", gold="B", verifier="choice").correct
    True
    >>> verify("A triangle has three sides.", gold="A", verifier="choice").reason
    <Reason.NO_ANSWER: 'no_answer'>
    """

    name: ClassVar[str] = "choice"
    version: ClassVar[int] = 1

    column: str = ""
    gold_index: GoldIndex = "none"
    policy: PolicyName = "lenient"

    @property
    def columns(self) -> frozenset[str]:
        """The column of the options, where one is named."""
        return frozenset({self.column} if self.column else ())

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        gold_text = gold_of(item)
        if gold_text is None or gold_text.text is None:
            return Verdict.abstained(Reason.GOLD_MISSING)
        gold = gold_text.text
        try:
            options = options_of(item.problem.meta, self.column)
        except Unreadable as error:
            return Verdict.abstained("options_unreadable", gold=gold, why=str(error))
        wanted = self._wanted(gold, options)
        if not wanted:
            why = f"it names none of the options {', '.join(options.labels)}"
            return Verdict.abstained(Reason.GOLD_UNREADABLE, gold=gold, why=why)
        choice = choose(item.completion, options, self.policy, several=len(wanted) > 1)
        if choice.text is None:
            return Verdict.marked(0, Reason.NO_ANSWER, gold=gold, method=choice.method)
        reason, rule = _decided(choice.labels, wanted)
        score = float(reason is Reason.EQUAL)
        return Verdict.marked(
            score, reason, extracted=shown(choice.text), gold=gold, method=choice.method, rule=rule
        )

    def _wanted(self, gold: str, options: Options) -> frozenset[str] | None:
        labels = named(gold, options, several=True)
        if labels is None and self.gold_index != "none" and gold.strip().isdecimal():
            index = int(gold) - (self.gold_index == "from_1")
            if 0 <= index < len(options.labels):
                return frozenset({options.labels[index]})
        return labels


def _decided(labels: frozenset[str] | None, wanted: frozenset[str]) -> tuple[Reason, str]:
    if labels is None:
        return Reason.UNREADABLE, "no option"
    if labels == HEDGE:
        return Reason.DIFFERENT, "several options"
    return (Reason.EQUAL if labels == wanted else Reason.DIFFERENT), "option"


def choose(
    completion: str, options: Options, policy: str | Policy = "lenient", *, several: bool = False
) -> Choice:
    """What a completion chooses.

    Args:
        completion: the response of a model, any text.
        options: what there is to choose from.
        policy: where a choice may stand.
        several: letters may stand together without commas, as in "AC".

    >>> choose("It is not B; the answer is C.", Options()).text
    'C'
    """
    allowed = Policy.of(policy)
    marked = dataclasses.replace(STRICT, boxed=allowed.boxed, hash=allowed.hash)
    found = extract(completion, policy=marked)
    boxed = None
    if found.text is not None:
        boxed = Choice(named(found.text, options, several=several), found.text, found.method)
        if boxed.labels is not None:
            return boxed
    _, tag, spoken = completion.rpartition("</think>")
    if not tag and "<think>" in spoken:
        return Choice(None, None, "none")  # still thinking when it was cut off
    if allowed.phrase:
        for tail in _tails(spoken):
            text, labels = _after(tail, options, several)
            if labels is not None:
                return Choice(labels, text, "phrase")
    last = spoken.rstrip().rpartition("\n")[2]
    if allowed.whole and last and boxed is None:
        labels = named(last, options, several=several)
        if labels is not None:
            return Choice(labels, last.strip(), "whole")
    return boxed or Choice(None, None, "none")


def _tails(spoken: str) -> Iterator[str]:
    """What follows each phrase, the last one first."""
    starts = [match.end() for match in PHRASE.finditer(spoken)]
    starts += [match.start() for match in STATED.finditer(spoken)]
    for start in sorted(starts, reverse=True)[:LAST_PHRASES]:
        yield spoken[start : start + TAIL_CHARS]


def _after(tail: str, options: Options, several: bool) -> tuple[str, frozenset[str] | None]:
    """The option that follows a phrase: a whole line, a sentence, or what stands before a comma."""
    lead = LEAD.match(tail)
    tail = tail[lead.end() :] if lead else tail
    line = tail.lstrip().partition("\n")[0]
    sentence = re.split(r"(?<=[^\s.][^A-Z\s.])\.(?=\s|$)|[!?。！？]|(?<=[\])A-Z$}*])\.\s", line)[0]
    clause = CUT.split(sentence)[0]
    for text in dict.fromkeys((line, sentence, clause)):
        if len(text) <= LONGEST and (labels := named(text, options, several=several)) is not None:
            hedged = text is clause and RETHOUGHT.match(sentence[len(clause) :])
            return plain(text), HEDGE if hedged else labels
    return "", None
