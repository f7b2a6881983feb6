"""What lies beside the weights of a final or best checkpoint: a model card, how to sample."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepmark.report.markdown import markdown_table
from stepmark.report.numbers import number
from stepmark.report.text import visible
from stepmark.store.run import RunFolder, flatten
from stepmark.training.adapter_files import FOLDER, describe
from stepmark.training.checkpoint import Policy
from stepmark.types import Sampling

__all__ = ["Card"]


class Card:
    """Writes ``README.md`` and ``generation_config.json`` into a checkpoint of a run.

    Args:
        run: its settings and metrics are the tables of the card.
        policy: its model and tokenizer say how to load it.
        sampling: of the run: what the generation config repeats.
    """

    def __init__(self, run: RunFolder, policy: Policy, sampling: Sampling) -> None:
        self.run, self.policy, self.sampling = run, policy, sampling

    def write(self, folder: Path, step: int, evaluation: Mapping[str, float]) -> None:
        """Put both files into a checkpoint that is being made."""
        (folder / "README.md").write_text(self.text(step, evaluation), encoding="utf-8")
        made = folder / "generation_config.json"
        own: dict[str, Any] = json.loads(made.read_text()) if made.is_file() else {}
        own.pop("_from_model_config", None)  # with it transformers would make the file's own anew
        tokenizer = self.policy.tokenizer
        own |= {
            "do_sample": True,
            "temperature": self.sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "max_new_tokens": self.sampling.max_tokens,
        }
        if own.get("eos_token_id") is None and tokenizer.eos_token_id is not None:
            own["eos_token_id"] = tokenizer.eos_token_id
        if own.get("pad_token_id") is None:
            pad = tokenizer.pad_token_id
            own["pad_token_id"] = tokenizer.eos_token_id if pad is None else pad
        made.write_text(json.dumps({k: v for k, v in own.items() if v is not None}, indent=2))

    def text(self, step: int, evaluation: Mapping[str, float]) -> str:
        """The card in Markdown: how to load it, the held-out evaluation, metrics, settings."""
        config = self.run.config()
        backend = str(config.get("algorithm", {}).get("backend", "own"))
        base = str(config.get("model", {}).get("policy", ""))
        adapters = describe(self.policy.model)
        tags = ["stepmark", backend, *(["lora"] if adapters else [])]
        hub = base if base and not Path(base).exists() and base.count("/") == 1 else None
        head = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
        head += [f"base_model: {json.dumps(hub)}"] if hub else []
        head += [f"tags: {json.dumps(tags)}", "---"]
        parts = [
            "\n".join(head),
            f"# A policy trained with {backend}, after step {step}",
            "Trained with Stepmark. It loads like any causal language model:",
            "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")\n'
            'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")\n```',
            "Sampled in training at temperature "
            f"{self.sampling.temperature:g}, up to {self.sampling.max_tokens} tokens; "
            "generation_config.json says the same.",
        ]
        if adapters:
            parts += _lora(adapters)
        if evaluation:
            rows = [[name.removeprefix("eval/"), number(n)] for name, n in evaluation.items()]
            parts += [
                "## Held-out evaluation at this step",
                markdown_table(["metric", "value"], rows),
                "The best checkpoint was chosen on these problems: measure it on others.",
            ]
        parts += [*self._metrics(step), *_settings(config)]
        return "\n\n".join(parts) + "\n"

    def _metrics(self, step: int) -> list[str]:
        rows = [row for row in self.run.metrics() if 0 < row["step"] <= step]
        if not rows:
            return []
        first, last = rows[0], rows[-1]
        names = [name for name in last if name != "step" and not name.startswith("eval/")]
        cells = [[name, number(first.get(name)), number(last[name])] for name in names]
        headers = ["metric", f"step {first['step']}", f"step {last['step']}"]
        return ["## Metrics of training", markdown_table(headers, cells)]


def _lora(adapters: Mapping[str, str]) -> list[str]:
    """What was trained in place of the whole model, and where it lies alone."""
    base = visible(_shown("model.policy", adapters["base"]))
    return [
        "## LoRA",
        f"Adapters of rank {adapters['rank']} (alpha {adapters['alpha']}) beside the layers "
        f"{adapters['layers']} of {base} were trained: {adapters['share']} numbers "
        "(arXiv:2106.09685). The weights in this folder have them added; by themselves they are "
        f"in `{FOLDER}/`:",
        "```python\nfrom peft import PeftModel\n\n"
        f"base = AutoModelForCausalLM.from_pretrained({json.dumps(base)})\n"
        f'model = PeftModel.from_pretrained(base, "THIS_FOLDER/{FOLDER}")\n```',
    ]


def _settings(config: Mapping[str, Any]) -> list[str]:
    """All settings but paths of the machine that trained: a card is made to be shown."""
    rows = [[key, visible(_shown(key, value))] for key, value in flatten(config).items()]
    return ["## Settings", markdown_table(["setting", "value"], rows)] if rows else []


def _shown(key: str, value: Any) -> str:
    if isinstance(value, str) and key != "model.device" and Path(value).is_absolute():
        return Path(value).name
    return value if isinstance(value, str) else json.dumps(value, default=str)
