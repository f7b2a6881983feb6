"""The settings of an evaluation: one object, whichever way they were said."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from stepmark.errors import ConfigError
from stepmark.evals import EvalSettings
from stepmark.evals.settings import Asked
from stepmark.tasks import load_task
from stepmark.types import Sampling


def test_keyword_arguments_are_the_fields_with_defaults() -> None:
    names = {field.name for field in fields(EvalSettings)}
    assert set(Asked.__annotations__) == names - {"sampling", "model"}


def test_settings_stay_as_they_were_made() -> None:
    settings = EvalSettings(Sampling(temperature=0.0), "m", limit=3)
    with pytest.raises(FrozenInstanceError):
        settings.n = 2  # type: ignore[misc]
    settings.check()
    task = load_task("arith?size=9")
    assert len(settings.problems_of(task)) == 3
    assert EvalSettings(Sampling(), first=2).problems_of(task) == task.problems[:2]


@pytest.mark.parametrize(
    ("n", "temperature", "said"), [(0, 1.0, "n is 0"), (4, 0.0, "n is 4 at temperature 0")]
)
def test_settings_that_cannot_work_are_named(n: int, temperature: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EvalSettings(Sampling(temperature=temperature), n=n).check()
