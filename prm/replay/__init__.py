"""Reward models that learn while the policy moves, and remember (DeepSeekMath 4.1.4).

::

    buffer = ReplayBuffer("runs/refresh")
    buffer.add(rows_it_learnt_from, 0)                     # once; round 0
    buffer.add(new_rows, 1, Provenance(policy_id="policy@400"))
    done = refresh("runs/prm/checkpoints/best", buffer, 1, RefreshConfig(), "runs/refresh")
    scorer = PrmScorer(done.model)                         # the new model, or the old one

``draw`` alone says what would be learnt from. Everything that was given once may be given again
after a kill: the same calls end with the same weights. Rows, draws and settings need no torch.
"""

from typing import TYPE_CHECKING, Any

from .admission import AdmissionReport
from .buffer import Reader, ReplayBuffer
from .config import RefreshConfig
from .draw import Balance, Mixture, draw
from .records import Annotator, Provenance, Record

if TYPE_CHECKING:
    from .reading import reader_of
    from .refreshing import RefreshOutcome, refresh
    from .rounds import Rescale, current_model

__all__ = [
    "AdmissionReport",
    "Annotator",
    "Balance",
    "Mixture",
    "Provenance",
    "Reader",
    "Record",
    "RefreshConfig",
    "RefreshOutcome",
    "ReplayBuffer",
    "Rescale",
    "current_model",
    "draw",
    "reader_of",
    "refresh",
]

_HOMES = {
    "RefreshOutcome": "refreshing",
    "Rescale": "rounds",
    "current_model": "rounds",
    "reader_of": "reading",
    "refresh": "refreshing",
}
"""What needs torch is loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from stepmark.errors import require

    require("torch", extra="train", purpose="The refresh of a reward model")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
