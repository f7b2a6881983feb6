"""`skywork`: Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B.

BOS, the problem, a newline, then the solution line by line. A value head gives one number at every
newline; its sigmoid is the score. Blank lines would be steps of their own there: they are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stepmark.errors import ConfigError, DataError
from stepmark.prm.encoding import Encoded, EncodingSettings, StepEncoder
from stepmark.types import Problem

from .scorer import PublishedScorer

if TYPE_CHECKING:
    from stepmark.prm.model import StepModel

__all__ = ["SkyworkEncoder", "SkyworkScorer"]


class SkyworkEncoder:
    """Lines as the publisher encodes them, each by itself; a step of several is scored at its last.

    Args:
        tokenizer: the checkpoint's.
        max_tokens: longest row.

    Raises:
        ConfigError: the tokenizer has no BOS.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        if not tokenizer.bos_token:
            raise ConfigError(
                "This tokenizer has no BOS, with which rows of a Skywork model begin. Take the "
                "tokenizer of the checkpoint."
            )
        self.lines = StepEncoder(
            tokenizer,
            EncodingSettings(
                template=f"{tokenizer.bos_token}{{problem}}\n",
                separator="\n",
                max_tokens=max_tokens,
            ),
        )

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens; each step is scored at the newline that ends it.

        Raises:
            DataError: there are no steps, or one is blank.
        """
        texts = (step.replace("\r\n", "\n") for step in steps)
        each = [[line for line in text.split("\n") if line.strip()] for text in texts]
        if blank := next((n for n, lines in enumerate(each, 1) if not lines), 0):
            raise DataError(
                f"Step {blank} of problem {problem.id!r} is blank, and a Skywork model has no "
                "score for it. Merge blank steps with their neighbours, as the splitters do."
            )
        row = self.lines.encode(problem, [line for lines in each for line in lines])
        ends, last = list[int](), -1
        for lines in each:
            last += len(lines)
            if last < len(row.ends):
                ends.append(row.ends[last])
        ids = row.ids[: ends[-1] + 1] if ends else ()
        return Encoded(row.prompt_ids, ids, tuple(ends), len(steps) - len(ends))


class SkyworkScorer(PublishedScorer):
    """Scores by a Skywork reward model: the sigmoid of its value at the end of each line."""

    name: ClassVar[str] = "skywork"
    published: ClassVar[str] = "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B"

    def load(self) -> StepModel:
        """The body with its value head."""
        from transformers import AutoConfig

        from .heads import ValueHead
        from .weights import headed_step_model

        width = AutoConfig.from_pretrained(self.path).get_text_config().hidden_size
        return headed_step_model(
            self.path, ValueHead(width), "v_head.", self.dtype, self.device, unused=("lm_head.",)
        )

    def make_encoder(self, tokenizer: Any) -> SkyworkEncoder:
        """Line by line."""
        return SkyworkEncoder(tokenizer, self.max_tokens)
