from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from stepmark.config.tables import RolloutTable
from stepmark.engines.transformers import TransformersEngine
from stepmark.rl_backends import Policy, Reward
from stepmark.store.run import RunFolder
from stepmark.types import Item, Problem, Prompt, Verdict


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], dict[str, Any]]:
    data = os.environ.get("STEPMARK_DATA")
    path = Path(data).parent / "oracle" / "rl_oracle.json" if data else None
    if path is None or not path.is_file():
        pytest.skip("the oracle file is beside STEPMARK_DATA, which is not set")
    cases = {case["id"]: case for case in json.loads(path.read_text())["cases"]}
    return cases.__getitem__


ARMS = ("a", "b", "c")


def bandit_policy(seed: int = 0) -> Policy:
    """A Llama of a few thousand weights over the words a, b, c and an end token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: id for id, word in enumerate(("<eos>", "<unk>", *ARMS))}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>"
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(LlamaForCausalLM(config).float(), tokenizer)


class Arm:
    """Full marks for a completion that begins with the gold."""

    key = "arm@1"
    columns: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.marked: list[tuple[str, str]] = []

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        self.marked += [(item.problem.id, item.completion) for item in items]
        return [
            Verdict.marked(float(item.completion.startswith(str(item.problem.gold))), "judged")
            for item in items
        ]


PROBLEMS = [
    Problem(f"bandit/{n}", text, gold="b", solution="b c")
    for n, text in enumerate(("a", "b", "c", "a b", "b c", "c a"))
]


def bandit_prompts(policy: Policy, count: int = 3) -> Callable[[int], list[Prompt]]:
    def prompts(step: int) -> list[Prompt]:
        chosen = [PROBLEMS[(step * count + n) % len(PROBLEMS)] for n in range(count)]
        return [Prompt(p, tuple(policy.tokenizer(p.text)["input_ids"]), p.text) for p in chosen]

    return prompts


class Bandit:
    """One run on the bandit: everything that `train` takes, made afresh."""

    def __init__(self, path: Path, *, verifier: Any = None, resume: bool = False) -> None:
        self.policy = bandit_policy()
        self.verifier = verifier or Arm()
        self.folder = RunFolder.create(path, {"kind": "bandit"}, {}, resume=resume)
        self.rollout = RolloutTable(group_size=4, prompts_per_step=3, max_tokens=2, seed=7)
        self.engine = TransformersEngine(self.policy.model, self.policy.tokenizer)

    def train(self, backend: Any, **given: Any) -> Any:
        from stepmark.rl_backends import train

        with self.folder as run:
            return train(
                run,
                backend,
                self.policy,
                **{
                    "prompts": bandit_prompts(self.policy),
                    "rollout": self.rollout,
                    "engine": self.engine,
                    "reward": Reward(((self.verifier, 1.0),)),
                    **given,
                },
            )

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.policy.model.state_dict()


@pytest.fixture
def bandit() -> type[Bandit]:
    return Bandit


@pytest.fixture(scope="session")
def learning() -> ModuleType:
    """The recipes of the slow tests of learning, which the campaign runs too: `learning.py`."""
    place = Path(__file__).with_name("learning.py")
    spec = importlib.util.spec_from_file_location("learning_recipes", place)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def taught(learning: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SFT checkpoint that every backend of the slow tests goes on from: made once a session."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = learning.taught(tmp_path_factory.mktemp("taught"), learning.SEED)
    torch.set_num_threads(threads)
    return made


@pytest.fixture(scope="session")
def right_before(learning: ModuleType, taught: Path) -> list[bool]:
    """Which held-out problems the SFT model solves."""
    return learning.right(taught)
