"""Stepmark marks the answer, and marks every step.

The names below are the vocabulary that every part shares. The parts are `stepmark.verifiers`
(text -> verdict), `stepmark.prm` (steps -> scores), `stepmark.rl_backends` (SFT, GRPO) and
`stepmark.evals` (benchmarks). Importing this module loads nothing heavy.
"""

from pathlib import Path as _Path

_root = _Path(__file__).resolve().parents[2]
if (_root / "pyproject.toml").is_file() and (_root / "rl_backends").is_dir():
    # A checkout: load the four top-level folders where they lie, so that tracebacks, coverage
    # and breakpoints show real paths and a clone without symbolic links still runs.
    __path__.insert(0, str(_root))

from stepmark.errors import (  # noqa: E402  (the path above must be set first)
    ConfigError,
    DataError,
    EngineError,
    Error,
    RunError,
    SetupError,
    UnknownNameError,
    VerifierError,
)
from stepmark.protocols import Engine, OutcomeVerifier, RewardModel, StepScorer  # noqa: E402
from stepmark.types import (  # noqa: E402
    Finish,
    Group,
    Item,
    LabelledSteps,
    Marked,
    Problem,
    Prompt,
    Reason,
    Rollout,
    Sampling,
    Status,
    StepItem,
    StepScores,
    Verdict,
)

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "Engine",
    "EngineError",
    "Error",
    "Finish",
    "Group",
    "Item",
    "LabelledSteps",
    "Marked",
    "OutcomeVerifier",
    "Problem",
    "Prompt",
    "Reason",
    "RewardModel",
    "Rollout",
    "RunError",
    "Sampling",
    "SetupError",
    "Status",
    "StepItem",
    "StepScorer",
    "StepScores",
    "UnknownNameError",
    "Verdict",
    "VerifierError",
    "__version__",
]
