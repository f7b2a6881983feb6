"""Where a reward model lies: a folder, or the hub; and a short name for what is in it."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

from stepmark.errors import SetupError, require

__all__ = ["folder_digest", "folder_of"]

FILES = ("*.json", "*.model", "*.txt", "*.jinja", "*.safetensors")
COUNTED = (".safetensors", ".bin", ".model")
NAMED = (
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
)
"""Files beside the weights that shape a score."""


def folder_of(place: str | Path) -> Path:
    """The folder of a model; a name on the hub is downloaded, or taken from the cache.

    Raises:
        SetupError: it is neither a folder nor to be had from the hub.
    """
    folder = Path(place).expanduser()
    if folder.is_dir():
        return folder
    name = str(place)
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or folder.exists():
        raise SetupError(
            f"There is no model folder {name!r}; a reward model is a folder, or a hub name such as "
            f"Qwen/Qwen2.5-Math-PRM-7B. Look for it:\n    ls {folder.parent}"
        )
    hub: Any = require("huggingface_hub", extra="train", purpose="A model from the hub")
    try:
        found = Path(hub.snapshot_download(name, allow_patterns=list(FILES)))
        if not any(found.glob("*.safetensors")):
            found = Path(hub.snapshot_download(name, allow_patterns=[*FILES, "*.bin"]))
    except Exception as error:  # the hub's errors have many parents; all mean that it is not here
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SetupError(
            f"The model {name!r} is neither a folder here nor to be had from the hub: {first:.200} "
            f"Check the name and the network, or download it once:\n    hf download {name}"
        ) from error
    return found


def folder_digest(folder: Path, *more: Any) -> str:
    """Eight hexadecimal digits of weights, config and tokenizer in a folder, and of more settings.

    Every byte of the weights is read: about a second per GB.
    """
    digest = blake2b(repr(more).encode("utf-8", "surrogatepass"), digest_size=4)
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.suffix in COUNTED or path.name in NAMED):
            digest.update(f"\n{path.name} {path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()
