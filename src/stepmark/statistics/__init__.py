"""Intervals, paired tests and metrics over several samples: pure functions without numpy."""

from .at_k import MeanAtK, best_at_k, maj_at_k, mean_at_k, pass_at_k
from .curves import CurvePoint, Drawn, accuracy_curve, doublings, expected_at_k
from .intervals import Interval, mean_interval, wilson
from .paired import Paired, mcnemar_exact, paired_means, paired_shares
from .student import t_probability, t_quantile
from .voting import Expected, vote_at_k

__all__ = [
    "CurvePoint",
    "Drawn",
    "Expected",
    "Interval",
    "MeanAtK",
    "Paired",
    "accuracy_curve",
    "best_at_k",
    "doublings",
    "expected_at_k",
    "maj_at_k",
    "mcnemar_exact",
    "mean_at_k",
    "mean_interval",
    "paired_means",
    "paired_shares",
    "pass_at_k",
    "t_probability",
    "t_quantile",
    "vote_at_k",
    "wilson",
]
