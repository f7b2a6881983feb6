"""The tables of a run's configuration that belong to no backend, as frozen pydantic models.

``[algorithm]`` is modelled by the backend that is chosen: `run_config` puts the five together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from stepmark.registry import Reference

from .names import Names
from .peft_table import PeftTable, peft_of
from .refresh_table import RefreshTable

__all__ = [
    "DataTable",
    "ModelTable",
    "Names",
    "RefreshTable",
    "RewardTable",
    "RolloutTable",
    "RunConfig",
    "ScorerShare",
    "Table",
    "VerifierShare",
    "run_config",
]


class Table(BaseModel):
    """A table of settings: frozen, unknown keys refused, each field documented below itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelTable(Table):
    """Which models a run holds, and how."""

    policy: str = Field(min_length=1)
    """Folder or hub id of the model that is trained; a tokenizer must lie beside its weights."""

    reference: str = "initial"
    """Model that the KL term pulls towards: ``initial`` is the policy as loaded, else a folder or
    hub id. Loaded only when the algorithm needs one."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the master weights. Pure bfloat16 cannot move at learning rates near 1e-6."""

    autocast: Literal["auto", "bfloat16", "none"] = "auto"
    """Type of matrix products over float32 weights: ``bfloat16`` is faster and lighter on a GPU,
    log-probs are then good to about 1e-2 nats. ``auto`` is bfloat16 on a GPU that has it, and
    ``none`` elsewhere."""

    gradient_checkpointing: bool = False
    """Compute the layers again in the backward pass: less memory, about a third more time."""

    peft: Annotated[PeftTable | None, BeforeValidator(peft_of)] = None
    """Adapters that learn in place of the whole model: ``"lora"``, or a table ``[model.peft]``."""

    device: str = "auto"
    """``auto`` (a GPU when there is one), ``cpu``, ``cuda`` or ``cuda:N``."""


class DataTable(Table):
    """Which problems are trained on, and which the policy is examined on."""

    task: Names = ()
    """Names of tasks, with settings where they take any: ``arith?steps=3``. Or use ``dataset``."""

    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Share of each task, unitless, in the order of ``task``; equal shares when absent."""

    dataset: str | None = None
    """A data set of your own instead of tasks: file, folder or hub id, with ``:split`` if it has
    splits."""

    prompt_column: str | None = None
    """Column of ``dataset`` that holds the problem; guessed and announced when absent."""

    gold_column: str | None = None
    """Column of ``dataset`` that holds the gold; guessed and announced when absent."""

    solution_column: str | None = None
    """Column of ``dataset`` that holds a worked solution, which SFT and SPIN learn from."""

    chosen_column: str | None = None
    """Column of ``dataset`` that holds the better of two completions, a text or messages, for DPO;
    ``chosen`` when absent."""

    rejected_column: str | None = None
    """Column of ``dataset`` that holds the worse one; ``rejected`` when absent."""

    split: str = "train"
    """Split of the tasks to train on."""

    prompt: str | None = None
    """Prompt template by name; each task's own when absent."""

    eval_task: Names = ()
    """Tasks for the held-out evaluation during training; the tasks trained on when absent."""

    eval_dataset: str | None = None
    """A data set of your own for the held-out evaluation, with the columns of ``dataset``."""

    eval_split: str = "test"
    """Split of the tasks for the held-out evaluation."""

    eval_limit: int | None = Field(default=200, gt=0)
    """Problems per held-out evaluation, chosen by hash; all of them when ``none``."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.task and self.dataset is not None:
            raise ValueError(
                f"data.task ({', '.join(self.task)}) and data.dataset ({self.dataset}) "
                "are both set; keep one of them"
            )
        if self.weights is not None and len(self.weights) != len(self.task):
            raise ValueError(
                f"data.weights has {len(self.weights)} numbers for {len(self.task)} names in "
                "data.task; give one per task, or none"
            )
        kinds = ("prompt", "gold", "solution", "chosen", "rejected")
        columns = [f"{kind}_column" for kind in kinds]
        if self.dataset is None and (
            named := [name for name in columns if getattr(self, name) is not None]
        ):
            raise ValueError(
                f"data.{named[0]} is set without data.dataset, whose columns it names; "
                "tasks know their own columns"
            )
        return self


class RolloutTable(Table):
    """How completions are drawn from the policy while it trains."""

    engine: str = "transformers"
    """Generation engine by name, with settings where it takes any."""

    group_size: int = Field(default=8, ge=1)
    """Completions per problem. GRPO compares them with each other and needs 2 or more
    (DeepSeekMath, arXiv:2402.03300, 4.2: 64)."""

    prompts_per_step: int = Field(default=16, ge=1)
    """Problems per step, each with ``group_size`` completions (DeepSeekMath 4.2: 1024 / 64)."""

    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the sampler; log-probs are those of the tempered distribution."""

    max_tokens: int = Field(default=256, ge=1)
    """Upper bound on the length of a completion, in tokens (DeepSeekMath 4.2: 1024)."""

    batch_size: int | None = Field(default=None, ge=1)
    """Rows that the engine generates at once; the engine's own choice when absent."""

    seed: int = Field(default=0, ge=0)
    """Seed of the whole run: data order, sampling and minibatches are derived from it."""


class Share(Table):
    """A verifier or scorer by name, with its weight."""

    name: str
    """Registered name, ``module:attr`` or ``file.py:attr``."""

    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Its weight, unitless."""

    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Its settings; in a file they may also stand beside the name:
    ``{name = "math", units = "require"}``."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        if isinstance(value, str):
            reference = Reference.parse(value)
            return {"name": reference.name, "settings": dict(reference.settings)}
        if isinstance(value, Mapping):
            own = {key: value[key] for key in ("name", "weight") if key in value}
            beside = {key: value[key] for key in value if key not in {*own, "settings"}}
            return {**own, "settings": {**value.get("settings", {}), **beside}}
        return value

    @property
    def reference(self) -> Reference:
        """The name with its settings, as `load_verifier` and `load_scorer` take it."""
        return Reference(self.name, dict(self.settings))


class VerifierShare(Share):
    """A verifier of the reward, with its weight."""

    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Factor of its score in the reward, unitless; 0 records the verdicts and rewards nothing."""


class ScorerShare(Share):
    """A step scorer, with its weight."""

    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Its share of the step scores, which are the mean over the scorers by weight; 0 records the
    scores and rewards nothing."""


def _shares(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping) else value


class RewardTable(Table):
    """What the optimiser sees: verdicts on completions, scores of their steps."""

    verifiers: Annotated[tuple[VerifierShare, ...], BeforeValidator(_shares)] = Field(
        default=(VerifierShare(name="math"),), min_length=1
    )
    """Verifiers with weights: a reference such as ``"math?units=require"``, or a table. The reward
    is the weighted sum of their scores; the first one marks the held-out evaluation."""

    scorers: Annotated[tuple[ScorerShare, ...], BeforeValidator(_shares)] = ()
    """Step scorers with weights, for process rewards: ``"arith-steps"``, or a table."""

    outcome: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of what the verifiers say, beside ``process``; 0 for process rewards alone
    (DeepSeekMath 4.1.3)."""

    process: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of what the scorers say of the steps; 0 records the scores and rewards nothing.
    Without scorers it means nothing."""

    largest_single_share: float = Field(default=0.5, ge=0, le=1)
    """Largest share of a run's first completions that may be one step; above it rewarding steps
    is refused, for it would be rewarding outcomes. 1 allows a policy that has yet to find steps."""

    refresh: RefreshTable = Field(default_factory=RefreshTable)
    """How reward models among the scorers learn during the run."""


class RunConfig(Table):
    """The five tables of a run; `run_config` makes the class for a backend."""

    model: ModelTable
    """Which models a run holds, and how."""

    data: DataTable = Field(default_factory=DataTable)
    """Which problems are trained on, and which the policy is examined on."""

    rollout: RolloutTable = Field(default_factory=RolloutTable)
    """How completions are drawn from the policy while it trains."""

    reward: RewardTable = Field(default_factory=RewardTable)
    """What the optimiser sees."""

    algorithm: BaseModel
    """The backend and its settings."""


def run_config(algorithm: type[BaseModel]) -> type[RunConfig]:
    """The configuration class of a run whose ``[algorithm]`` table is a backend's model.

    The model gains the key ``backend`` where it has none of its own.
    """
    if "backend" not in algorithm.model_fields:
        doc = Field(default="grpo", description="Backend by name: stepmark plugins lists them.")
        algorithm = create_model(
            algorithm.__name__, __base__=algorithm, __doc__=algorithm.__doc__, backend=(str, doc)
        )
    needed = any(field.is_required() for field in algorithm.model_fields.values())
    default = Field() if needed else Field(default_factory=algorithm)
    return create_model("RunConfig", __base__=RunConfig, algorithm=(algorithm, default))
