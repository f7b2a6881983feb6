"""Published reward models of other projects, each through one adapter; see docs/prm-scoring.md.

No code of a checkpoint is run: the architecture is transformers', the head is ours, and weights are
loaded by their names.
"""

from __future__ import annotations

from .math_shepherd import MathShepherdScorer
from .qwen import QwenScorer
from .rlhflow import RlhFlowScorer
from .skywork import SkyworkScorer

__all__ = ["MathShepherdScorer", "QwenScorer", "RlhFlowScorer", "SkyworkScorer"]
