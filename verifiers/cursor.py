"""Reading tokens one by one, with a count of nesting."""

from __future__ import annotations

from .lexer import Token, tokens
from .limits import MAX_CHAIN, MAX_DEPTH, TooLarge, Unreadable

__all__ = ["Cursor"]


class Cursor:
    """A place in the tokens of one text; what is read is never read again."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.trig = 0
        self.cells = 0
        self.stop = -1

    @property
    def next(self) -> Token:
        """The token to be read."""
        return self.tokens[self.at]

    def peek(self, offset: int = 1) -> Token:
        """A later token; the end token beyond the end."""
        return self.tokens[min(self.at + offset, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.at]
        if token.kind != "end" or token.text:
            self.at += 1
        return token

    def is_op(self, *names: str) -> bool:
        """Whether the next token is one of these operators."""
        token = self.tokens[self.at]
        return token.kind == "op" and token.text in names

    def accept(self, *names: str) -> str | None:
        """Read the next token if it is one of these operators."""
        token = self.tokens[self.at]
        if token.kind == "op" and token.text in names:
            self.at += 1
            return token.text
        return None

    def expect(self, *names: str) -> str:
        """Read one of these operators, or refuse."""
        if not self.is_op(*names):
            raise Unreadable(
                f"{self.next.text or 'the end'!r} where {' or '.join(names)!r} belongs"
            )
        return self.take().text

    def enter(self) -> None:
        """Count one level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def leave(self) -> None:
        """Leave one level of nesting."""
        self.depth -= 1

    def count(self, links: int) -> int:
        """One more term or factor; refused beyond the bound."""
        if links >= MAX_CHAIN:
            raise TooLarge(f"a sum or product of more than {MAX_CHAIN} parts")
        return links + 1
