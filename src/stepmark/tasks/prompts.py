"""How a problem is put to a model: named, hashed templates."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from stepmark.errors import ConfigError, UnknownNameError, did_you_mean

__all__ = ["PROMPTS", "PromptTemplate", "hashes_by_name", "prompt_from_table", "prompt_named"]

Chat = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    r"""The words around a problem, and whether the model's chat template goes around those.

    >>> PromptTemplate("mine", "Question: {problem}\nAnswer:").fill("1 + 1?")
    'Question: 1 + 1?\nAnswer:'
    """

    name: str
    template: str = "{problem}"
    """Holds ``{problem}`` exactly once; every other brace is text."""
    system: str | None = None
    """The system message of a chat; without a chat template it stands above the text."""
    chat: Chat = "auto"
    """``auto``: use the tokenizer's chat template if it has one; ``always``: it must; ``never``."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion."""

    def __post_init__(self) -> None:
        if (count := self.template.count("{problem}")) != 1:
            raise ConfigError(
                f"The prompt {self.name!r} holds {{problem}} {count} times; it must hold it once. "
                'A template reads: template = "{problem}\\nPlease reason step by step."'
            )
        if self.chat not in ("auto", "always", "never"):
            raise ConfigError(
                f"The prompt {self.name!r} has chat = {self.chat!r}; "
                "it must be 'auto', 'always' or 'never'."
            )

    def fill(self, problem: str) -> str:
        """The template around a problem's text, before any chat template."""
        before, _, after = self.template.partition("{problem}")
        return before + problem + after

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of the content; two templates that say the same share it."""
        content = asdict(self)
        del content["name"]
        return hashlib.blake2b(
            json.dumps(content, sort_keys=True).encode(), digest_size=8
        ).hexdigest()


_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."

PROMPTS: dict[str, PromptTemplate] = {
    prompt.name: prompt
    for prompt in (
        PromptTemplate("plain", "{problem}\n"),
        PromptTemplate("qwen_boxed", system=_STEP_BY_STEP),
        PromptTemplate("deepseek_cot_en", "{problem}\n" + _STEP_BY_STEP),
        PromptTemplate(
            "gsm8k_zeroshot",
            "{problem}\nLet's think step by step and put your final answer, "
            "a single number, within \\boxed{}.",
        ),
    )
}
"""The built-in templates: the problem alone; Qwen2.5-Math's; DeepSeekMath's; one for GSM8K."""


def prompt_named(name: str) -> PromptTemplate:
    """The built-in template of that name, or the one in a TOML file.

    The file has the keys ``template``, ``system``, ``chat``, ``stop`` and ``name`` (the file's name
    unless given).

    Raises:
        UnknownNameError: no template is called that.
        ConfigError: the file cannot be read, or has a key or value that is not allowed.
    """
    if name.endswith(".toml"):
        return _from_file(Path(name).expanduser())
    if name not in PROMPTS:
        raise UnknownNameError.of("prompt", name, PROMPTS, "Your own is a file: my_prompt.toml.")
    return PROMPTS[name]


def hashes_by_name(prompts: Iterable[PromptTemplate]) -> dict[str, str]:
    """The hash of each template under its name; of two that share a name, both are there.

    Files in two folders may have one name: the second is kept as ``name@hash``.

    >>> one, other = PromptTemplate("p", "{problem}?"), PromptTemplate("p", "{problem}!")
    >>> len(hashes_by_name([one, one, other]))
    2
    """
    found: dict[str, str] = {}
    for prompt in prompts:
        is_new = found.setdefault(prompt.name, prompt.hash) != prompt.hash
        if is_new:
            found[f"{prompt.name}@{prompt.hash}"] = prompt.hash
    return found


def _from_file(path: Path) -> PromptTemplate:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"The prompt file {str(path)!r} cannot be read: {error}. "
            'It is TOML, such as: template = "{problem}"'
        ) from error
    return prompt_from_table({"name": path.stem, **table}, where=str(path))


def prompt_from_table(table: dict[str, object], *, where: str) -> PromptTemplate:
    """The template that a TOML table describes.

    Raises:
        ConfigError: a key or value is not allowed; the message starts with ``where``.
    """
    kinds = {"name": str, "template": str, "system": str, "chat": str, "stop": list}
    for key, value in table.items():
        if key not in kinds:
            hint = did_you_mean(key, kinds)
            raise ConfigError(
                f"{where}: a prompt has no key {key!r}. {hint} Known: {', '.join(kinds)}."
            )
        if not isinstance(value, kinds[key]):
            raise ConfigError(f"{where}: {key} is {value!r}; it must be a {kinds[key].__name__}.")
    values: dict[str, Any] = dict(table)
    if "stop" in values:
        values["stop"] = tuple(values["stop"])
    return PromptTemplate(**values)
