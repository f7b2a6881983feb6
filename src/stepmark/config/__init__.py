"""Settings: TOML files composed left to right, overrides, and one message for what is wrong.

`compose` builds the tree and remembers where every value came from; `validate` turns it into
pydantic models, with the names that people bring from other libraries in the alias table.
"""

from .aliases import ALIASES as ALIASES
from .aliases import Alias, alias_hint
from .compose import Composed, Flag, compose, preset_names, to_toml
from .show import Setting, settings_of
from .tables import DataTable, ModelTable, RewardTable, RolloutTable, RunConfig, run_config
from .validate import validate

__all__ = [
    "Alias",
    "Composed",
    "DataTable",
    "Flag",
    "ModelTable",
    "RewardTable",
    "RolloutTable",
    "RunConfig",
    "Setting",
    "alias_hint",
    "compose",
    "preset_names",
    "run_config",
    "settings_of",
    "to_toml",
    "validate",
]
