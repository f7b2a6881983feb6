"""The one place where a problem becomes prompt ids: template, chat template, BOS, length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError, SetupError
from stepmark.types import Problem, Prompt

from .checks import check_length
from .specials import hidden, ids_of, revealed

if TYPE_CHECKING:
    from stepmark.tasks.prompts import PromptTemplate

__all__ = ["adds_bos", "render"]

NO_LIMIT = 10**9
"""Tokenizers without a limit carry a ``model_max_length`` of about 1e30."""


def render(
    problem: Problem,
    tokenizer: Any,
    template: PromptTemplate,
    *,
    max_tokens: int = 1,
    model_limit: int | None = None,
) -> Prompt:
    """The prompt of a problem: its text through the templates, and the ids of that text.

    There is exactly one BOS in front where the tokenizer adds one by itself or the chat template
    writes one; none is added elsewhere. A prompt never ends in an EOS that a tokenizer appends.

    Args:
        problem: its text replaces ``{problem}`` in the template, braces and all; special tokens
            that it spells out are tokenised as text.
        tokenizer: a tokenizer of transformers.
        template: ``chat`` says whether the tokenizer's chat template goes around it.
        max_tokens: tokens that the completion may take.
        model_limit: tokens that the model can hold; by default what the tokenizer says, if it does.

    Raises:
        SetupError: the template wants a chat template and the tokenizer has none.
        ConfigError: the prompt is empty, or leaves no room for the completion.
    """
    text, ids = _rendered(problem.text, tokenizer, template)
    bos = tokenizer.bos_token_id
    if bos is not None:
        written = next((place for place, token in enumerate(ids) if token != bos), len(ids))
        if written or adds_bos(tokenizer):
            ids = [bos, *ids[written:]]
            text = tokenizer.bos_token + text if not written else text
    if not ids:
        raise ConfigError(
            f"The prompt of problem {problem.id!r} has no tokens (its text is {text!r}). "
            "Give the problem a text, or a prompt template that holds some."
        )
    prompt = Prompt(problem, tuple(ids), text)
    limit = model_limit or int(min(tokenizer.model_max_length, NO_LIMIT))
    check_length(prompt, max_tokens, limit)
    return prompt


def _rendered(problem: str, tokenizer: Any, template: PromptTemplate) -> tuple[str, list[int]]:
    """The text of a problem through the templates, and its ids, before any BOS is added."""
    around = f"{template.template}{template.system}{getattr(tokenizer, 'chat_template', None)}"
    problem, words = hidden(problem, tokenizer, around)
    text = template.fill(problem)
    if _wants_chat(tokenizer, template):
        text = _through_chat(text, tokenizer, template)
    elif template.system:
        text = f"{template.system}\n\n{text}"
    return revealed(text, words), ids_of(text, words, tokenizer)


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts its BOS in front of plain text by itself."""
    bos = tokenizer.bos_token_id
    probe: list[int] = tokenizer("1")["input_ids"]
    return bos is not None and bool(probe) and probe[0] == bos


def _wants_chat(tokenizer: Any, template: PromptTemplate) -> bool:
    has_one = bool(getattr(tokenizer, "chat_template", None))
    if template.chat == "always" and not has_one:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise SetupError(
            f"The prompt template {template.name!r} needs a chat template, and the tokenizer of "
            f'{name!r} has none. Take an instruct model, or a template with chat = "auto":\n'
            "    --prompt plain"
        )
    return has_one and template.chat != "never"


def _through_chat(text: str, tokenizer: Any, template: PromptTemplate) -> str:
    from stepmark.errors import require

    require("jinja2", extra="train", purpose="A chat template")
    from jinja2 import TemplateError

    turns = [{"role": "user", "content": text}]
    if template.system:
        turns.insert(0, {"role": "system", "content": template.system})
    try:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        roles = ", ".join(turn["role"] for turn in turns)
        raise ConfigError(
            f"The chat template of {tokenizer.name_or_path!r} refuses the roles {roles}: {error}. "
            f'Choose a prompt without a system text, or one with chat = "never".'
        ) from error
