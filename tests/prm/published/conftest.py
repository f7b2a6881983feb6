"""Tiny random models of published architectures: made from configs, saved as their authors do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}<|/head|>\n\n"
    "{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)
QWEN = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 1024, "initializer_range": 0.3,
}  # fmt: skip


def byte_level(specials: list[str], template: str | None, bos: str | None = None) -> Any:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    words = ["Ana has 3 pens. Step 1: 3 + 4 = 7.\n\nSo + - <extra_0> the answer is 7.\n"] * 4
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        words,
        trainers.BpeTrainer(vocab_size=330, special_tokens=specials, initial_alphabet=alphabet),
    )
    given = {} if bos is None else {"bos_token": bos}
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=specials[0],
        additional_special_tokens=specials,
        model_max_length=1024,
        **given,
    )
    made.chat_template = template
    return made


def sentencepiece_like() -> Any:
    """Words with a blank in front, a BOS that is added, and the tag as one token behind a blank."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    text = "Ana has 3 pens. How many? Step 1: 3 + 4 = 7. ки\nStep 2: The answer is: 7 ки + - ки"
    inner.train_from_iterator(
        [text] * 50 + ["0123456789" * 5, "abcdefghijklmnopqrstuvwxyz", "к и"] * 5,
        trainers.BpeTrainer(vocab_size=220, special_tokens=["<unk>", "<s>", "</s>"]),
    )
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def write(folder: Path, config: Any, tensors: dict[str, torch.Tensor], **named: Any) -> None:
    """A checkpoint in the files of its authors, with the code that they ask to run."""
    folder.mkdir(parents=True, exist_ok=True)
    held = config.to_dict() | {"auto_map": {"AutoModel": "modeling_theirs.Theirs"}} | named
    (folder / "config.json").write_text(json.dumps(held))
    (folder / "modeling_theirs.py").write_text("raise SystemExit('code of a checkpoint was run')\n")
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


@pytest.fixture(scope="session")
def qwen_body() -> Callable[[int], Any]:
    def make(vocabulary: int) -> Any:
        torch.manual_seed(3)
        config = Qwen2Config(vocab_size=vocabulary, tie_word_embeddings=False, **QWEN)
        return Qwen2ForCausalLM(config).eval()

    return make


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory, qwen_body: Any) -> tuple[Path, Any, Any]:
    """Folder, causal model and head of a tiny Qwen2.5-Math-PRM."""
    folder = tmp_path_factory.mktemp("qwen") / "prm"
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>"], CHATML)
    model = qwen_body(len(tokenizer))
    head = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    tensors = dict(model.state_dict()) | {f"score.{n}": t for n, t in head.state_dict().items()}
    write(folder, model.config, tensors, architectures=["Qwen2ForProcessRewardModel"])
    tokenizer.save_pretrained(folder)
    return folder, model, head


@pytest.fixture(scope="session")
def skywork(tmp_path_factory: pytest.TempPathFactory, qwen_body: Any) -> tuple[Path, Any, Any]:
    """Folder, causal model and value head of a tiny Skywork model."""
    folder = tmp_path_factory.mktemp("skywork") / "prm"
    tokenizer = byte_level(["<|endoftext|>"], None, bos="<|endoftext|>")
    model = qwen_body(len(tokenizer))
    head = torch.nn.Linear(32, 1)
    tensors = dict(model.state_dict())
    tensors |= {f"v_head.summary.{name}": t for name, t in head.state_dict().items()}
    write(folder, model.config, tensors, architectures=["Qwen2ForPrmModel"])
    tokenizer.save_pretrained(folder)
    return folder, model, head


@pytest.fixture(scope="session")
def shepherd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Folder, model and tokenizer of a tiny Math-Shepherd."""
    from transformers import MistralConfig, MistralForCausalLM

    tokenizer = sentencepiece_like()
    torch.manual_seed(4)
    config = MistralConfig(vocab_size=len(tokenizer), sliding_window=None, **QWEN)
    model = MistralForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("shepherd") / "prm"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


@pytest.fixture(scope="session")
def rlhflow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Folder, model and tokenizer of a tiny RLHFlow model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_level(["<|eot|>", "<|head|>", "<|/head|>", "<|bos|>"], HEADERS, bos="<|bos|>")
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **QWEN)).eval()
    folder = tmp_path_factory.mktemp("rlhflow") / "prm"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer
