"""Step labels without people: roll-outs from every prefix, or from those a binary search asks for.

A label says whether the answer can still be *reached* from a prefix by this completer. It does not
say that the step is right.
"""

from .annotator import Annotator
from .asking import upper_bound
from .counts import Cost, Counts
from .estimates import AnnotatedSteps, StepEstimate, StepReason, estimate_of
from .items import Prefix, ToAnnotate, from_sample, from_steps
from .settings import AnnotationSettings

__all__ = [
    "AnnotatedSteps",
    "AnnotationSettings",
    "Annotator",
    "Cost",
    "Counts",
    "Prefix",
    "StepEstimate",
    "StepReason",
    "ToAnnotate",
    "estimate_of",
    "from_sample",
    "from_steps",
    "upper_bound",
]
