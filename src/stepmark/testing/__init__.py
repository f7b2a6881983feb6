"""Contract tests for third parties: does your part keep the promises that ours keep?"""

from .verifier import Check, CheckFailed, Report, check_verifier

__all__ = ["Check", "CheckFailed", "Report", "check_verifier"]
