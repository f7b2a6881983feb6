"""Policy optimisation on one loop: backends are pure modules, `train` is the only trainer.

GRPO, PPO, DPO (from data, online, self-play), RFT and SFT ship; a third party adds one by an entry
point of the group ``stepmark.backends``.
The names are loaded when they are asked for: settings can be read and checked without torch.
"""

if __name__ == "rl_backends":
    raise ImportError(
        "This folder is the source of stepmark.rl_backends: import that name. "
        "For another project's package named 'rl_backends', run outside this checkout."
    )

from typing import TYPE_CHECKING, Any

from .config import AlgorithmConfig, check
from .events import Evaluated, Event, Refreshed, Saved, Started, StepDone, StepsCounted
from .reward import Reward

if TYPE_CHECKING:
    from stepmark.training.checkpoint import Policy, TrainingState

    from .advantages import group_advantages
    from .backend import Backend, Losses, Models, Prepared, backends
    from .data import prompt_source
    from .demonstrations import Demonstrations
    from .dpo import Dpo, DpoConfig, OnlineDpo, OnlineDpoConfig, Spin, SpinConfig
    from .grpo import Grpo, GrpoConfig
    from .kl import kl_tokens
    from .loop import TrainResult, train
    from .ppo import Ppo, PpoConfig
    from .preference_data import preference_problems
    from .rft import Rft, RftConfig
    from .sft import Sft, SftConfig

__all__ = [
    "AlgorithmConfig",
    "Backend",
    "Demonstrations",
    "Dpo",
    "DpoConfig",
    "Evaluated",
    "Event",
    "Grpo",
    "GrpoConfig",
    "Losses",
    "Models",
    "OnlineDpo",
    "OnlineDpoConfig",
    "Policy",
    "Ppo",
    "PpoConfig",
    "Prepared",
    "Refreshed",
    "Reward",
    "Rft",
    "RftConfig",
    "Saved",
    "Sft",
    "SftConfig",
    "Spin",
    "SpinConfig",
    "Started",
    "StepDone",
    "StepsCounted",
    "TrainResult",
    "TrainingState",
    "backends",
    "check",
    "group_advantages",
    "kl_tokens",
    "preference_problems",
    "prompt_source",
    "train",
]

_HOMES = {
    "Policy": "stepmark.training.checkpoint",
    "TrainingState": "stepmark.training.checkpoint",
    "group_advantages": f"{__name__}.advantages",
    "Demonstrations": f"{__name__}.demonstrations",
    "kl_tokens": f"{__name__}.kl",
    "prompt_source": f"{__name__}.data",
    **dict.fromkeys(("Grpo", "GrpoConfig"), f"{__name__}.grpo"),
    **dict.fromkeys(
        ("Dpo", "DpoConfig", "OnlineDpo", "OnlineDpoConfig", "Spin", "SpinConfig"),
        f"{__name__}.dpo",
    ),
    **dict.fromkeys(("Ppo", "PpoConfig"), f"{__name__}.ppo"),
    "preference_problems": f"{__name__}.preference_data",
    **dict.fromkeys(("Rft", "RftConfig"), f"{__name__}.rft"),
    **dict.fromkeys(("Sft", "SftConfig"), f"{__name__}.sft"),
    **dict.fromkeys(("TrainResult", "train"), f"{__name__}.loop"),
    **dict.fromkeys(("Backend", "Losses", "Models", "Prepared", "backends"), f"{__name__}.backend"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from stepmark.errors import require

    require("torch", extra="train", purpose="Training")
    return getattr(importlib.import_module(_HOMES[name]), name)
