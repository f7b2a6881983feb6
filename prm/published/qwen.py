r"""`qwen-prm`: Qwen/Qwen2.5-Math-PRM-7B and -72B (arXiv:2501.07301).

A chat with a system text; the assistant's turn is the steps, each ended by the token ``<extra_0>``.
A head of two layers gives two classes, wrong and right, at those tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from stepmark.prm.encoding import EncodingSettings, StepEncoder

from .scorer import PublishedScorer

if TYPE_CHECKING:
    from stepmark.prm.model import StepModel

__all__ = ["QwenScorer"]

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


class QwenScorer(PublishedScorer):
    """Scores by Qwen2.5-Math-PRM: the probability of its second class at ``<extra_0>``."""

    name: ClassVar[str] = "qwen-prm"
    published: ClassVar[str] = "Qwen/Qwen2.5-Math-PRM-7B"
    splits_at: ClassVar[str] = "blank_line"

    def load(self) -> StepModel:
        """The body with its head."""
        from transformers import AutoConfig

        from .heads import TwoLayerHead
        from .weights import headed_step_model

        config = AutoConfig.from_pretrained(self.path, trust_remote_code=False)
        head = TwoLayerHead(config.get_text_config().hidden_size)
        return headed_step_model(
            self.path, head, "score.", self.dtype, self.device, unused=("lm_head.",)
        )

    def make_encoder(self, tokenizer: Any) -> StepEncoder:
        """The chat template around the problem, a tag behind every step."""
        return StepEncoder(
            tokenizer,
            EncodingSettings(
                template="{problem}",
                system=SYSTEM,
                chat="always",
                separator="",
                mark="tag",
                tag="<extra_0>",
                max_tokens=self.max_tokens,
            ),
        )
