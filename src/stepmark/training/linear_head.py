r"""Log-probs through a linear head: logits of a few tokens at a time, gradients in closed form.

.. math::
    \log p = z_y - \log \sum_v e^{z_v}, \quad z = (W h + b) / T, \quad
    H = -\sum_v p_v \log p_v

    \partial \log p / \partial z_v = [v = y] - p_v, \quad
    \partial H / \partial z_v = -p_v (\log p_v + H)

Forward keeps one number per token, the log of the sum. Backward makes the logits of a chunk again
and turns them into their gradient in place: one chunk of tokens x vocabulary is all that is held
(two where entropies are asked for), in one piece of memory for all chunks.

Shapes: ``N`` sampled tokens, ``D`` hidden width, ``V`` vocabulary, ``C`` tokens of one chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["logps_of_linear"]


def logps_of_linear(
    hidden_ND: Float[Tensor, "N D"],
    head: nn.Linear,
    targets_N: Int[Tensor, " N"],
    temperature: float,
    with_entropy: bool,
    chunk: int,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """Log-probs, and entropies where asked for; both in nats, float32, and carry gradient.

    Logits are made in the head's dtype, or autocast's, and worked on in float32.

    Args:
        hidden_ND: one row per sampled token: the state that predicts it.
        head: its weight and bias are used; hooks are not called.
        targets_N: the sampled tokens.
        temperature: logits are divided by it.
        with_entropy: also the entropy of each distribution.
        chunk: tokens whose logits are held at once.
    """
    device = hidden_ND.device.type
    dtype = head.weight.dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    made: Any = _Head.apply(
        hidden_ND.to(dtype),
        head.weight.to(dtype),
        None if head.bias is None else head.bias.to(dtype),
        targets_N,
        temperature,
        with_entropy,
        chunk,
    )
    return made


class _Head(torch.autograd.Function):
    """The head as one operation, with `once_differentiable` gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        with_entropy: bool,
        chunk: int,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        norms: list[Tensor] = []
        logps: list[Tensor] = []
        entropies: list[Tensor] = []
        logits_of = _Logits(weight_VD, bias_V, temperature, min(chunk, len(hidden_ND)))
        mass_room = torch.empty_like(logits_of.room) if with_entropy else None
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for hidden_CD, targets_C in zip(
                hidden_ND.split(chunk), targets_N.split(chunk), strict=True
            ):
                scaled_CV = logits_of(hidden_CD)
                peak_C = scaled_CV.amax(-1)
                chosen_C = scaled_CV.gather(-1, targets_C[:, None]).squeeze(-1)
                below_CV = scaled_CV.sub_(peak_C[:, None])
                room = None if mass_room is None else mass_room[: len(below_CV)]
                mass_CV = below_CV.exp_() if room is None else torch.exp(below_CV, out=room)
                total_C = mass_CV.sum(-1)
                log_total_C = total_C.log()
                norms.append(peak_C + log_total_C)
                logps.append(chosen_C - norms[-1])
                if with_entropy:
                    entropies.append(log_total_C - mass_CV.mul_(below_CV).sum(-1) / total_C)
        norm_N = torch.cat(norms)
        entropy_N = torch.cat(entropies) if with_entropy else None
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, norm_N, entropy_N)
        ctx.temperature, ctx.chunk = temperature, chunk
        return torch.cat(logps), entropy_N

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logps_grad_N, entropy_grad_N = grads
        hidden_ND, weight_VD, bias_V, targets_N, norm_N, entropy_N = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        hidden_grad_ND = torch.empty_like(hidden_ND) if needs_hidden else None
        # Sums over chunks are kept in float32, whatever the weights are in.
        weight_grad_VD = norm_N.new_zeros(weight_VD.shape) if needs_weight else None
        bias_grad_V = norm_N.new_zeros(len(weight_VD)) if needs_bias else None
        logits_of = _Logits(weight_VD, bias_V, ctx.temperature, min(ctx.chunk, len(hidden_ND)))
        for start in range(0, len(hidden_ND), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            grad_CV = logits_of(hidden_ND[part])
            _to_gradient(
                grad_CV,
                norm_N[part],
                targets_N[part],
                None if logps_grad_N is None else logps_grad_N[part] / ctx.temperature,
                None if entropy_N is None else entropy_N[part],
                None if entropy_grad_N is None else entropy_grad_N[part] / ctx.temperature,
            )
            if bias_grad_V is not None:
                bias_grad_V += grad_CV.sum(0)
            grad_CV = grad_CV.to(weight_VD.dtype)
            if hidden_grad_ND is not None:
                torch.mm(grad_CV, weight_VD, out=hidden_grad_ND[part])
            if weight_grad_VD is not None and weight_VD.dtype == torch.float32:
                weight_grad_VD.addmm_(grad_CV.T, hidden_ND[part])
            elif weight_grad_VD is not None:
                weight_grad_VD += grad_CV.T @ hidden_ND[part]
        sums = (
            None if total is None else total.to(weight_VD.dtype)
            for total in (weight_grad_VD, bias_grad_V)
        )
        return hidden_grad_ND, *sums, None, None, None, None


class _Logits:
    """Tempered logits in float32 of one chunk after another, in the same memory."""

    def __init__(
        self, weight_VD: Tensor, bias_V: Tensor | None, temperature: float, most: int
    ) -> None:
        self.weight_VD, self.bias_V, self.temperature = weight_VD, bias_V, temperature
        self.room = weight_VD.new_empty(most, len(weight_VD), dtype=torch.float32)

    def __call__(self, hidden_CD: Tensor) -> Float[Tensor, "C V"]:
        """Those of these tokens; the ones before are overwritten."""
        logits_CV, weight_DV = self.room[: len(hidden_CD)], self.weight_VD.T
        if self.weight_VD.dtype != torch.float32:
            logits_CV.copy_(nn.functional.linear(hidden_CD, self.weight_VD, self.bias_V))
        elif self.bias_V is None:
            torch.mm(hidden_CD, weight_DV, out=logits_CV)
        else:
            torch.addmm(self.bias_V, hidden_CD, weight_DV, out=logits_CV)
        return logits_CV if self.temperature == 1 else logits_CV.div_(self.temperature)


def _to_gradient(
    scaled_CV: Tensor,
    norm_C: Tensor,
    targets_C: Tensor,
    logps_grad_C: Tensor | None,
    entropy_C: Tensor | None,
    entropy_grad_C: Tensor | None,
) -> None:
    """Turn tempered logits into the gradient of the loss by them, in place."""
    logps_CV = scaled_CV.sub_(norm_C[:, None])
    if entropy_grad_C is None or entropy_C is None:
        assert logps_grad_C is not None
        logps_CV.exp_().mul_(-logps_grad_C[:, None])
    else:
        inner_CV = (logps_CV + entropy_C[:, None]).mul_(entropy_grad_C[:, None])
        if logps_grad_C is not None:
            inner_CV += logps_grad_C[:, None]
        logps_CV.exp_().mul_(inner_CV.neg_())
    if logps_grad_C is not None:
        scaled_CV.scatter_add_(-1, targets_C[:, None], logps_grad_C[:, None])
