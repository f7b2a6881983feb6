"""LoRA on the one loop: every backend, resumed to the bit, with the base written down only once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from runpy import run_path

import pytest
import torch

from stepmark.config.peft_table import PeftTable
from stepmark.engines import TransformersEngine, load_policy
from stepmark.errors import ConfigError, RunError
from stepmark.rl_backends import Grpo, GrpoConfig, Policy, Ppo, PpoConfig
from stepmark.rl_backends.events import Saved
from stepmark.rl_backends.frozen import FrozenModels
from stepmark.rl_backends.replay import load_replay, replay, updater_of
from stepmark.training.checkpoint import load_state
from stepmark.training.lora import adapt, base_of, is_adapted, layers_of, plain_weights, weights_of

every = run_path(str(Path(__file__).with_name("every_backend.py")))
Started, CASES, difference = every["Started"], every["CASES"], every["difference"]

TABLE = PeftTable(rank=2, alpha=8.0)
SHORT = {"steps": 3, "mu": 2, "minibatches": 2, "save_every_minibatches": 3}


class Killed(Exception):
    pass


def with_adapters(run, base="models/bandit"):
    adapt(run.policy.model, TABLE, seed=7, base=base)
    return run


def started(bandit, name, path, *, resume=False):
    one = Started(bandit, name, path, resume=resume)
    with_adapters(one.run)
    return one


def killed_at(save):
    def on_event(event):
        seen.append(isinstance(event, Saved))
        if sum(seen) == save:
            raise Killed

    seen = []
    return on_event


def move(model):
    for weight in weights_of(model).values():
        weight.add_(0.1)


def data_of(model):
    return {name: weight.data_ptr() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("name", CASES)
def test_a_run_with_adapters_resumes_to_the_bit_and_trains_nothing_else(
    bandit, tmp_path, name
) -> None:
    straight = started(bandit, name, tmp_path / "straight")
    model = straight.run.policy.model
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    straight.go(**SHORT)
    after = model.state_dict()
    changed = {key for key in after if not torch.equal(before[key], after[key])}
    assert changed
    assert all(".lora_" in key for key in changed)
    with pytest.raises(Killed):
        started(bandit, name, tmp_path / "killed").go(killed_at(2), **SHORT)
    started(bandit, name, tmp_path / "killed", resume=True).go(**SHORT)
    assert difference(tmp_path / "straight", tmp_path / "killed") is None
    finals = [tmp_path / run / "checkpoints/final/adapter" for run in ("straight", "killed")]
    assert len({(one / "adapter_model.safetensors").read_bytes() for one in finals}) == 1


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_numbered_checkpoints_hold_adapters_and_the_final_one_a_whole_model(
    bandit, tmp_path, name
) -> None:
    from transformers import AutoModelForCausalLM

    one = started(bandit, name, tmp_path / "run")
    result = one.go(steps=2, outer=1, save_every=1)
    model = one.run.policy.model
    step = tmp_path / "run/checkpoints/step-000001"
    assert not (step / "model.safetensors").exists()
    base = json.loads((step / "adapter/base.json").read_text())
    assert base == {"name": "models/bandit", "fingerprint": base_of(model).fingerprint}
    critic = load_state(step).critic
    assert (critic is None) == (name == "grpo")
    for weight in (critic or {"weights": {}})["weights"].values():
        assert min(weight.shape) <= TABLE.rank
    loaded = AutoModelForCausalLM.from_pretrained(result.final).eval()
    ids = torch.tensor([[2, 3, 4, 2]])
    with torch.no_grad():
        gap = (loaded(input_ids=ids).logits - model(input_ids=ids).logits).abs().max()
    assert gap <= 1e-5
    assert not is_adapted(loaded)
    card = (result.final / "README.md").read_text()
    assert "## LoRA" in card
    assert "Adapters of rank 2 (alpha 8)" in card
    assert "models/bandit" in card


def test_a_numbered_checkpoint_loads_as_its_base_with_the_adapters_added(bandit, tmp_path) -> None:
    base = tmp_path / "base"
    run = bandit(tmp_path / "run")
    run.policy.model.save_pretrained(base)
    run.policy.tokenizer.save_pretrained(base)
    with_adapters(run, str(base))
    run.train(Grpo(GrpoConfig(steps=2, learning_rate=1e-2, save_every=1)))
    step = run.folder.checkpoints / "step-000001"
    loaded, _ = load_policy(step)
    assert not is_adapted(loaded)
    weights = loaded.state_dict()
    assert weights.keys() == plain_weights(run.policy.model).keys()
    first = load_policy(base)[0].state_dict()
    moved = {key for key in first if not torch.equal(first[key], weights[key])}
    assert moved == {f"{name}.weight" for name in layers_of(run.policy.model)}
    alone = tmp_path / "alone"
    shutil.copytree(step / "adapter", alone)
    run.policy.tokenizer.save_pretrained(alone)
    again = load_policy(alone)[0].state_dict()
    assert all(torch.equal(again[key], weight) for key, weight in weights.items())


def test_frozen_models_hold_no_second_copy_of_the_base(bandit, tmp_path) -> None:
    model = with_adapters(bandit(tmp_path / "run")).policy.model
    frozen = FrozenModels({"reference", "first-policy"}, model)
    assert frozen.first is frozen.reference
    assert all(layer.disable_adapters for layer in layers_of(frozen.reference).values())
    mine, theirs = data_of(model), data_of(frozen.reference)
    shared = {name for name in mine if mine[name] == theirs[name]}
    assert shared == {name for name in mine if ".lora_" not in name}


def test_the_reference_is_the_base_and_after_a_refresh_a_copy_that_stays(bandit, tmp_path) -> None:
    model = with_adapters(bandit(tmp_path / "run")).policy.model
    ids = torch.tensor([[2, 3, 4, 2]])

    def logits(one):
        with torch.no_grad():
            return one(input_ids=ids).logits

    base = logits(model)
    frozen = FrozenModels({"reference"}, model)
    move(model)
    moved = logits(model)
    assert not torch.equal(moved, base)
    assert torch.equal(logits(frozen.reference), base)
    state = frozen.refresh(model)
    assert torch.equal(logits(frozen.reference), moved)
    assert state is not None
    assert state.keys() == weights_of(model).keys()
    move(model)
    assert torch.equal(logits(frozen.reference), moved)
    assert not any(weight.requires_grad for weight in frozen.reference.parameters())
    other = FrozenModels({"reference"}, model)
    other.restore(state)
    assert torch.equal(logits(other.reference), moved)


def test_a_reference_of_ones_own_makes_way_for_adapters_at_the_first_refresh(
    bandit, tmp_path
) -> None:
    own = bandit(tmp_path / "other").policy.model
    model = with_adapters(bandit(tmp_path / "run")).policy.model
    frozen = FrozenModels({"reference"}, model, own)
    assert frozen.reference is own
    frozen.refresh(model)
    assert is_adapted(frozen.reference)
    assert frozen.models() == [frozen.reference]


def test_an_altered_base_is_refused_by_name(bandit, tmp_path) -> None:
    run = with_adapters(bandit(tmp_path / "run"))
    run.train(Grpo(GrpoConfig(steps=1, learning_rate=1e-2)))
    again = bandit(tmp_path / "run", resume=True)
    with torch.no_grad():
        again.policy.model.lm_head.weight[0, 0] += 0.5
    with_adapters(again)
    with pytest.raises(RunError, match=r"belong to the base model 'models/bandit' with finger"):
        again.train(Grpo(GrpoConfig(steps=2, learning_rate=1e-2)))


def test_adapters_drawn_from_another_seed_are_another_beginning(bandit, tmp_path) -> None:
    run = with_adapters(bandit(tmp_path / "run"))
    run.train(Grpo(GrpoConfig(steps=1, learning_rate=1e-2)))
    again = bandit(tmp_path / "run", resume=True)
    adapt(again.policy.model, TABLE, seed=8, base="models/bandit")
    with pytest.raises(RunError, match="began with other weights"):
        again.train(Grpo(GrpoConfig(steps=2, learning_rate=1e-2)))


@pytest.mark.parametrize(
    ("kind", "config", "more"),
    [
        (Grpo, GrpoConfig, {}),
        (Ppo, PpoConfig, {"critic": "own"}),
        (Ppo, PpoConfig, {"critic": "shared"}),
    ],
    ids=["grpo", "ppo-own", "ppo-shared"],
)
def test_a_replay_with_adapters_gives_the_numbers_of_the_run_bit_for_bit(
    bandit, tmp_path, kind, config, more
) -> None:
    common = {"steps": 1, "learning_rate": 1e-2, "mu": 1, "minibatches": 1, **more}
    straight = with_adapters(bandit(tmp_path / "straight"))
    straight.train(kind(config(**common)))
    wanted = straight.folder.metrics()[0]
    with pytest.raises(RunError, match="loss_limit"):
        with_adapters(bandit(tmp_path / "stopped")).train(kind(config(**common, loss_limit=1e-12)))
    batch = load_replay(tmp_path / "stopped/replay/step-000001")
    found = replay(updater_of(batch, load_policy(batch.folder)[0]), batch)
    for name in ("loss", "grad_norm", "critic/grad_norm"):
        if name in wanted:
            assert found.numbers[name] == wanted[name], name


def test_adapters_that_peft_made_are_trained_and_its_wrapper_is_refused(bandit, tmp_path) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    backend = Grpo(GrpoConfig(steps=1, learning_rate=1e-2))
    run = bandit(tmp_path / "run")
    config = LoraConfig(r=2, lora_dropout=0.1, target_modules=["q_proj"], task_type="CAUSAL_LM")
    inject_adapter_in_model(config, run.policy.model)
    final = run.train(backend).final
    assert (final / "adapter/adapter_config.json").is_file()
    assert len(layers_of(run.policy.model)) == 1
    odd = bandit(tmp_path / "odd")
    config = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)
    inject_adapter_in_model(config, odd.policy.model)
    with pytest.raises(ConfigError, match="of LORA with use_dora"):
        odd.train(backend)

    class Wrapper(torch.nn.Module):
        def get_base_model(self):
            return odd.policy.model

    odd.policy = Policy(Wrapper(), odd.policy.tokenizer)
    with pytest.raises(ConfigError, match=r"Give policy\.get_base_model\(\)"):
        odd.train(backend, prompts=lambda step: [])


def test_an_engine_with_a_model_of_its_own_takes_over_the_merged_weights(bandit, tmp_path) -> None:
    run = with_adapters(bandit(tmp_path / "run"))
    own = bandit(tmp_path / "other").policy
    run.engine = TransformersEngine(own.model, own.tokenizer)
    run.train(Grpo(GrpoConfig(steps=3, learning_rate=1e-2)))
    merged = plain_weights(run.policy.model)
    assert all(torch.equal(weight, merged[name]) for name, weight in own.model.state_dict().items())
    assert run.engine.version == 3
