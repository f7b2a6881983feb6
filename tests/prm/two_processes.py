"""Run in two processes by test_processes.py: the same training alone and together, compared.

Process 0 trains alone first; then both train together, and process 0 writes the differences.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from stepmark.errors import RunError
from stepmark.prm.fitting import Fit, Loss
from stepmark.prm.learning import StepLearner
from stepmark.prm.outcome_train import OutcomeLearner, prepare_outcomes
from stepmark.prm.outcome_train import _card as outcome_card
from stepmark.prm.outcome_train import _model as outcome_model
from stepmark.prm.train import _batches, _card, _model, adapted, begun, prepare
from stepmark.prm.train_config import PrmConfig, RmConfig
from stepmark.training.interrupts import StopRequest
from stepmark.training.processes import processes


def fitted(case: dict[str, Any], out: Path) -> dict[str, Any]:
    """Weights, their gradients in the last step, and the last evaluation."""
    kind = RmConfig if case["verb"] == "rm" else PrmConfig
    config: Any = kind.model_validate(case["config"])
    prepared: Any
    if kind is RmConfig:
        prepared = prepare_outcomes(config)
        model: Any = outcome_model(prepared.config)
        learner: Any = OutcomeLearner(model, prepared, outcome_card(prepared))
    else:
        prepared = prepare(config)
        model = _model(prepared.config)
    precision = adapted(config.model, model.model, 0, model.layer)
    if case["dtype"] == "float64":
        model.model.double()  # adapters too
    if kind is PrmConfig:
        learner = StepLearner(
            model, prepared.train, prepared.held_out, _card(prepared, model), config.algorithm,
            _batches(prepared),
        )  # fmt: skip
    if case.get("broken") == processes().index:
        spoil(learner)
    with begun(out, config, {}, "the same", resume=False) as run, StopRequest() as stop:
        fit = Fit(run, learner, config.algorithm, precision, stop, lambda _: None)
        result = fit.run()
    parts = [part for part in (learner.model, learner.extra) if part is not None]
    named = [(f"{n}.{name}", w) for n, p in enumerate(parts) for name, w in p.named_parameters()]
    trained = {name: weight for name, weight in named if weight.requires_grad}
    gradients = {n: w.grad.clone() for n, w in trained.items() if w.grad is not None}
    weights = {name: weight.detach().clone() for name, weight in trained.items()}
    batches = [len(learner.batches.of_step(step).rows) for step in range(1, result.step + 1)]
    return {
        "weights": weights,
        "gradients": gradients,
        "batches": batches,
        "metrics": dict(result.metrics),
    }


def spoil(learner: Any) -> None:
    """The losses of this process are no numbers."""
    losses = learner.losses

    def spoilt(*given: Any) -> Any:
        for compute in losses(*given):
            yield lambda made=compute: Loss(
                (loss := made()).value * float("nan"), {**loss.numbers, "loss": float("nan")}
            )

    learner.losses = spoilt


def told(case: dict[str, Any], out: Path) -> str:
    """What a training says that cannot go on."""
    try:
        fitted(case, out)
    except RunError as error:
        return str(error)
    return "it went on"


def differences(alone: dict[str, Any], together: dict[str, Any]) -> dict[str, Any]:
    """Largest difference of a weight, relative one of all gradients, what was evaluated."""
    assert alone["gradients"].keys() == together["gradients"].keys()
    flat = [
        torch.cat([one["gradients"][name].flatten() for name in alone["gradients"]])
        for one in (alone, together)
    ]
    pairs = zip(alone["weights"].values(), together["weights"].values(), strict=True)
    return {
        "weights": max(float((one - two).abs().max()) for one, two in pairs),
        "gradients": float((flat[0] - flat[1]).norm() / flat[0].norm()),
        "metrics": [alone["metrics"], together["metrics"]],
        "batches": alone["batches"],
        "size": float(flat[0].norm()),
    }


def main(folder: Path, index: int, port: str) -> None:
    """All cases, one after the other."""
    torch.set_num_threads(1)
    cases: dict[str, dict[str, Any]] = json.loads((folder / "cases.json").read_text())
    alone: dict[str, Any] = {}
    broken = {name: cases.pop(name) for name in list(cases) if "broken" in cases[name]}
    if index == 0:
        alone = {name: fitted(case, folder / f"{name}-alone") for name, case in cases.items()}
    processes.cache_clear()
    os.environ |= {"LOCAL_RANK": str(index), "RANK": str(index), "WORLD_SIZE": "2"}
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert processes().count == 2
    together = {name: fitted(case, folder / name) for name, case in cases.items()}
    words = {name: told(case, folder / name) for name, case in broken.items()}
    (folder / f"told-{index}.json").write_text(json.dumps(words))
    if index == 0:
        found = {name: differences(alone[name], together[name]) for name in cases}
        (folder / "found.json").write_text(json.dumps(found))
    processes().leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
