r"""What DPO and its family learn from a pair: a better completion beside a worse one.

DPO (arXiv:2305.18290), its conservative form (Mitchell, "A note on DPO with noisy preferences",
2023) and IPO (arXiv:2310.12036). With sums of log-probs over the completion's sampled tokens, the
end token included and the prompt excluded:

.. math:: h = [\log \pi(y_w) - \log \pi_{ref}(y_w)] - [\log \pi(y_l) - \log \pi_{ref}(y_l)]

A micro-batch holds whole pairs, the chosen completion before the rejected one.

Legend of shape suffixes: P pairs, N sampled tokens of all their completions, flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from stepmark.errors import ConfigError

from .advantages import is_scored

__all__ = [
    "Pair",
    "PairLogps",
    "Pairing",
    "PreferenceLoss",
    "loss_at_reference",
    "pair_logps",
    "pairs_from_group",
    "preference_losses",
    "preference_metrics",
    "reference_margins",
]

PreferenceLoss = Literal["sigmoid", "ipo-sum", "ipo-mean"]
"""``sigmoid`` is DPO; ``ipo-sum`` is IPO as its paper writes it, on sums of log-probs; ``ipo-mean``
is IPO on means per token, as TRL has it. The last two differ by orders of magnitude."""

Pairing = Literal["right-over-wrong", "margin", "best-over-worst"]
"""Which pairs a verified group gives; see `pairs_from_group`."""

_ROUNDING = 1e-9
"""0.3 - 0.1 is a little less than 0.2: a margin of 0.2 must take it."""


class PairLogps(NamedTuple):
    """Sums of log-probs of each pair's completions, nats; 0 for a reference that is not there."""

    chosen_P: Float[Tensor, " P"]
    rejected_P: Float[Tensor, " P"]
    ref_chosen_P: Float[Tensor, " P"]
    ref_rejected_P: Float[Tensor, " P"]
    chosen_tokens_P: Float[Tensor, " P"]
    """Sampled tokens of each chosen completion."""
    rejected_tokens_P: Float[Tensor, " P"]


class Pair(NamedTuple):
    """Places of two completions in their group."""

    chosen: int
    rejected: int
    margin: float
    """How far their scores are apart, above 0."""


def pair_logps(
    logps_N: Float[Tensor, " N"],
    ref_logps_N: Float[Tensor, " N"] | None,
    lengths: Sequence[int],
) -> PairLogps:
    """Sums over the tokens of each completion, in float64; gradient flows to ``logps``.

    Args:
        logps_N: of all sampled tokens, completions end to end: chosen, rejected, chosen, ...
        ref_logps_N: the same under the reference; None for the reference-free form, which takes
            the reference to be uniform.
        lengths: sampled tokens of each completion, an even number of them.

    Raises:
        ConfigError: a completion has no partner.
    """
    if len(lengths) % 2:
        raise ConfigError(
            f"A micro-batch of preferences holds {len(lengths)} completions; it must hold whole "
            "pairs, each chosen one before its rejected one. Keep the pairs together."
        )
    tokens_B = torch.tensor(lengths, device=logps_N.device)
    sums_B = _sums(logps_N, lengths)
    free = ref_logps_N is None
    refs_B = torch.zeros_like(sums_B) if free else _sums(ref_logps_N.detach(), lengths)
    each = (sums_B, refs_B, tokens_B.to(sums_B))
    chosen, rejected = ([row[start::2] for row in each] for start in (0, 1))
    return PairLogps(chosen[0], rejected[0], chosen[1], rejected[1], chosen[2], rejected[2])


def _sums(logps_N: Tensor, lengths: Sequence[int]) -> Tensor:
    """In float64: a sum over a thousand tokens leaves float32 four digits behind the point."""
    rows = torch.split(logps_N, list(lengths))
    return torch.stack([row.sum(dtype=torch.float64) for row in rows])


def reference_margins(pairs: PairLogps, *, per_token: bool = False) -> Float[Tensor, " P"]:
    """The ``h`` of each pair: how much further the policy sets them apart than the reference, nats.

    Args:
        pairs: see `pair_logps`.
        per_token: each completion's log-ratio is divided by its tokens first.
    """
    chosen_P = pairs.chosen_P - pairs.ref_chosen_P
    rejected_P = pairs.rejected_P - pairs.ref_rejected_P
    if per_token:
        return chosen_P / pairs.chosen_tokens_P - rejected_P / pairs.rejected_tokens_P
    return chosen_P - rejected_P


def preference_losses(
    pairs: PairLogps,
    *,
    loss: PreferenceLoss = "sigmoid",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> Float[Tensor, " P"]:
    r"""The loss of each pair, to be minimised; divide the sum by the pairs of the minibatch.

    ``sigmoid`` is DPO (arXiv:2305.18290), eq. (7); with label smoothing :math:`\epsilon` it is
    cDPO, which takes a share of the labels to be wrong and is least at
    :math:`\beta h = \log((1 - \epsilon)/\epsilon)` instead of at infinity:

    .. math:: -(1 - \epsilon) \log\sigma(\beta h) - \epsilon \log\sigma(-\beta h)

    ``ipo-sum`` is IPO (arXiv:2310.12036), eq. (17): :math:`(h - 1/(2\tau))^2` with
    :math:`\tau` = ``beta``; ``ipo-mean`` takes both log-ratios per token.

    Args:
        pairs: see `pair_logps`.
        loss: which of the three.
        beta: how closely the policy is held to the reference; the tau of IPO.
        label_smoothing: share of pairs taken to be labelled the wrong way round, below one half.

    Raises:
        ConfigError: beta is not above 0, or label smoothing does not suit the loss.
    """
    check_preference(loss, beta, label_smoothing)
    margins_P = reference_margins(pairs, per_token=loss == "ipo-mean")
    if loss != "sigmoid":
        return (margins_P - 1 / (2 * beta)).square()
    right_P = logsigmoid(beta * margins_P)
    if not label_smoothing:
        return -right_P
    wrong_P = logsigmoid(-beta * margins_P)
    return -(1 - label_smoothing) * right_P - label_smoothing * wrong_P


def check_preference(loss: PreferenceLoss, beta: float, label_smoothing: float) -> None:
    """Refuse settings that are no loss.

    Raises:
        ConfigError: beta is not above 0, or label smoothing does not suit the loss.
    """
    if beta <= 0:
        raise ConfigError(
            f"beta is {beta:g}; the preference losses need it above 0. 0.1 is DPO's usual value."
        )
    if not 0 <= label_smoothing < 0.5 or (label_smoothing and loss != "sigmoid"):
        raise ConfigError(
            f'label_smoothing is {label_smoothing:g} with the loss "{loss}"; it must be in '
            '[0, 0.5), and above 0 only with "sigmoid". Set label_smoothing = 0, or that loss.'
        )


def loss_at_reference(loss: PreferenceLoss = "sigmoid", beta: float = 0.1) -> float:
    r"""What the loss must be before the first update, when policy and reference are one model.

    :math:`\ln 2` for DPO whatever its label smoothing, :math:`1/(4\tau^2)` for IPO. Anything else
    says that the two saw different inputs: dropout, another template, padding. The reference-free
    form has no such value.

    >>> loss_at_reference(), loss_at_reference("ipo-sum", beta=0.1)
    (0.6931471805599453, 25.0)
    """
    return math.log(2) if loss == "sigmoid" else (1 / (2 * beta)) ** 2


def preference_metrics(pairs: PairLogps, beta: float) -> dict[str, Float[Tensor, " P"]]:
    r"""What each pair adds to the log, under TRL's names; without gradient.

    ``rewards/chosen`` and ``rewards/rejected`` are DPO's implicit rewards
    :math:`\beta (\log\pi - \log\pi_{ref})` of sums, whatever the loss; ``rewards/margins`` their
    difference; ``rewards/accuracies`` 1 where the chosen one is above; ``logps/chosen`` and
    ``logps/rejected`` the sums themselves, nats. Average each over the pairs.
    """
    chosen_P = beta * (pairs.chosen_P - pairs.ref_chosen_P).detach()
    rejected_P = beta * (pairs.rejected_P - pairs.ref_rejected_P).detach()
    return {
        "rewards/chosen": chosen_P,
        "rewards/rejected": rejected_P,
        "rewards/accuracies": (chosen_P > rejected_P).to(chosen_P),
        "rewards/margins": chosen_P - rejected_P,
        "logps/chosen": pairs.chosen_P.detach(),
        "logps/rejected": pairs.rejected_P.detach(),
    }


def pairs_from_group(
    scores: Sequence[float | None],
    *,
    by: Pairing = "right-over-wrong",
    right_from: float = 1.0,
    margin: float = 0.0,
    cap: int | None = None,
) -> tuple[Pair, ...]:
    """The pairs that a verified group gives, in the order of their places.

    ``right-over-wrong``: every completion with ``right_from`` or more over every one with less.
    ``margin``: every completion over those whose score is lower by at least ``margin``.
    ``best-over-worst``: the first of the best over the first of the worst. A group in which all
    scores are equal gives none, and a completion without a score (None, NaN) is in no pair.

    With a cap the pairs furthest apart stay; among equals those of the completions that are in the
    fewest pairs so far, so that no completion stands for the whole group.

    Args:
        scores: one per completion of one problem.
        by: which pairs.
        right_from: least score of a right completion.
        margin: least difference of scores; pairs of equal scores are never made.
        cap: most pairs of one problem; None for all.

    >>> [pair[:2] for pair in pairs_from_group([1, 0, 1, 0])]
    [(0, 1), (0, 3), (2, 1), (2, 3)]
    >>> [pair[:2] for pair in pairs_from_group([1, 0, 1, 0], cap=2)]
    [(0, 1), (2, 3)]
    >>> pairs_from_group([1, 1, None, 1])
    ()
    """
    scored = [(place, score) for place, score in enumerate(scores) if is_scored(score)]
    pairs = [
        Pair(i, j, high - low)
        for i, high in scored
        for j, low in scored
        if high > low and high - low >= margin - _ROUNDING
    ]
    if by == "right-over-wrong":
        rights = {place for place, score in scored if score >= right_from}
        pairs = [pair for pair in pairs if pair.chosen in rights and pair.rejected not in rights]
    elif by == "best-over-worst":
        pairs = sorted(pairs, key=lambda pair: -pair.margin)[:1]
    return tuple(pairs if cap is None else _spread(pairs, cap))


def _spread(pairs: Sequence[Pair], cap: int) -> list[Pair]:
    """The widest pairs, taken evenly from the completions; see `pairs_from_group`."""
    if cap >= len(pairs):
        return list(pairs)
    left, kept, uses = list(pairs), list[Pair](), dict[int, int]()
    while left and len(kept) < cap:
        pair = min(left, key=lambda p: (-p.margin, uses.get(p[0], 0) + uses.get(p[1], 0)))
        left.remove(pair)
        kept.append(pair)
        for place in pair[:2]:
            uses[place] = uses.get(place, 0) + 1
    return sorted(kept)
