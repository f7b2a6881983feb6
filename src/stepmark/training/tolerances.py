"""How far two computations of one number may differ; tests and start-up checks read it here."""

from __future__ import annotations

from typing import Final

__all__ = [
    "GRADIENTS_FLOAT32",
    "LOGPS_BFLOAT16",
    "LOGPS_FLOAT32",
    "LOGPS_VLLM_FLOAT32",
    "SCORES_BFLOAT16",
    "SCORES_FLOAT32",
]

LOGPS_FLOAT32: Final = 1e-4
"""Largest difference of a token's log-prob, same model, float32, in nats."""
LOGPS_VLLM_FLOAT32: Final = 1e-3
"""The same against vLLM's kernels in float32, in nats."""
LOGPS_BFLOAT16: Final = 1e-2
"""Mean absolute difference of log-probs when one side computes in bfloat16, in nats."""
GRADIENTS_FLOAT32: Final = 1e-5
"""Largest difference of a gradient over the largest gradient of that weight, float32."""
SCORES_FLOAT32: Final = 1e-4
"""Largest difference of a step's score, same checkpoint, float32, in probability."""
SCORES_BFLOAT16: Final = 5e-2
"""The same where one side computes in bfloat16, in probability."""
