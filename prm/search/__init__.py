"""Using step scores: the best of n, votes, and search over steps, with any engine and scorer."""

from .choosing import best_of_n, majority, weighted_majority
from .classes import answer_classes
from .searching import Candidate, Found, beam_search, search
from .settings import SearchSettings

__all__ = [
    "Candidate",
    "Found",
    "SearchSettings",
    "answer_classes",
    "beam_search",
    "best_of_n",
    "majority",
    "search",
    "weighted_majority",
]
