"""Two hundred embedded responses, marked by two verifiers: what Stepmark does, offline, in seconds.

The problems, the responses and the labels are this project's own, chosen to be hard for verifiers
and written in the manners of different models. They are a tour, not a benchmark: no accuracy
measured on them says anything about a model, and little about a verifier on real data.
"""

from .data import Response, load_responses
from .marking import DemoResult, MarkedResponse, mark_responses
from .page import demo_page

__all__ = [
    "DemoResult",
    "MarkedResponse",
    "Response",
    "demo_page",
    "load_responses",
    "mark_responses",
]
