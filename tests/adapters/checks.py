"""Verifiers of a user, as a file: what the tests of the adapters name by path."""

from __future__ import annotations

import zlib


def units(completion, gold, unit, digits=2):
    """Right with the number and the unit; the digits are there to be set."""
    return completion == f"{gold} {unit}" or (0.5 if completion == str(digits) else 0)


def some(completion, gold, unit):
    """No score for some completions, 0 or 1 for the others: by their text alone."""
    number = zlib.crc32(completion.encode("utf-8", "replace"))
    return None if number % 5 == 0 else number % 2


def asks(completion, gold, mass):
    """Asks for a column that the data of the tests do not have."""
    return True


def sees(completion, prompt, problem, solution=None):
    """Right when the three texts of the test came through."""
    return (prompt, problem, solution) == ("Be brief.\n\n2+2?", "2+2?", "four")


def breaks(completion, gold):
    """Raises on everything."""
    raise RuntimeError("no such table")


def shouts(completion):
    """Needs no gold."""
    return completion.isupper()
