r"""Text in, verdict out. Sympy, never torch.

`verify` marks one completion; `load_verifier` turns a name, a file or a function into a verifier
that marks batches. The pieces (`extract`, `parse`, `equal`) are public, so that a verifier of your
own is a few lines over ours; `AllOf`, `FirstOf` and `WeightedSum` make one of several.
"""

if __name__ == "verifiers":
    raise ImportError(
        "This folder is the source of stepmark.verifiers: import that name. "
        "For another project's package named 'verifiers', run outside this checkout."
    )

from collections.abc import Mapping
from typing import Any

from stepmark.types import Item, Problem, Verdict

from .batch import Divided, mark_async, mark_many, submit
from .choice import ChoiceVerifier
from .combine import AllOf, FirstOf, WeightedSum, weighted_total
from .compare import Comparison, compare
from .equality import GoldError, equal
from .exact import ExactVerifier
from .extract import Extraction, extract, extract_gold
from .format import FormatVerifier
from .functions import check_columns, from_function, registry
from .length import LengthVerifier
from .limits import TooLarge, Unreadable
from .loading import load_verifier, register, remember, remembered
from .math import Explanation, MathVerifier, explain
from .numeric import NumericVerifier
from .policy import LENIENT, STRICT, Policy
from .reading import parse
from .rendering import spelled
from .workers import close_workers, set_workers, worker_count

__all__ = [
    "LENIENT",
    "STRICT",
    "AllOf",
    "ChoiceVerifier",
    "Comparison",
    "Divided",
    "ExactVerifier",
    "Explanation",
    "Extraction",
    "FirstOf",
    "FormatVerifier",
    "GoldError",
    "LengthVerifier",
    "MathVerifier",
    "NumericVerifier",
    "Policy",
    "TooLarge",
    "Unreadable",
    "Verdict",
    "WeightedSum",
    "check_columns",
    "close_workers",
    "compare",
    "equal",
    "explain",
    "extract",
    "extract_gold",
    "from_function",
    "load_verifier",
    "mark_async",
    "mark_many",
    "parse",
    "register",
    "registry",
    "remember",
    "remembered",
    "set_workers",
    "spelled",
    "submit",
    "verify",
    "weighted_total",
    "worker_count",
]


DEFAULT = MathVerifier()


def verify(
    completion: str,
    *,
    gold: str | None,
    verifier: object = "math",
    columns: Mapping[str, Any] | None = None,
) -> Verdict:
    r"""The verdict on one completion.

    Args:
        completion: the response of a model, any text.
        gold: the reference answer, or a worked solution that ends in it. By name only: swapped
            arguments would be scored, and wrongly.
        verifier: a reference as `load_verifier` takes it.
        columns: other columns of the row, for verifiers that ask for them.

    >>> verify(r"So it is \boxed{\frac12}.", gold="0.5").correct
    True
    >>> verify("I do not know.", gold="0.5").reason
    <Reason.NO_ANSWER: 'no_answer'>
    >>> verify("Paris", gold="B", verifier="choice", columns={"choices": ["Rome", "Paris"]}).score
    1.0
    """
    # The name of the default is not looked up among installed packages each time: that takes 3 ms.
    mark = DEFAULT if verifier == "math" else load_verifier(verifier)  # type: ignore[arg-type]
    return mark([Item(Problem("0", "", gold, meta=dict(columns or {})), completion)])[0]
