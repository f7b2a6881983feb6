"""Stopping by signal; see `stepmark.training.interrupts`, which other loops share."""

from stepmark.training.interrupts import Interrupted, StopRequest

__all__ = ["Interrupted", "StopRequest"]
