r"""Text in, verdict out. Sympy, never torch.

`verify` marks one completion; `load_verifier` turns a name, a file or a function into a verifier
that marks batches. The pieces (`extract`, `parse`, `compare`) are public, so that a verifier of
your own is a few lines over ours.
"""

if __name__ == "verifiers":
    raise ImportError(
        "This folder is the source of stepmark.verifiers: import that name. "
        "For another project's package named 'verifiers', run outside this checkout."
    )

from stepmark.types import Item, Problem, Verdict

from .compare import Comparison, compare
from .exact import ExactVerifier
from .extract import Extraction, extract, extract_gold
from .functions import check_columns, from_function, registry
from .limits import TooLarge, Unreadable
from .loading import load_verifier, remember, remembered, verifier
from .math import Explanation, MathVerifier, explain
from .reading import parse, spelled
from .workers import close_workers

__all__ = [
    "Comparison",
    "ExactVerifier",
    "Explanation",
    "Extraction",
    "MathVerifier",
    "TooLarge",
    "Unreadable",
    "Verdict",
    "check_columns",
    "close_workers",
    "compare",
    "explain",
    "extract",
    "extract_gold",
    "from_function",
    "load_verifier",
    "parse",
    "registry",
    "remember",
    "remembered",
    "spelled",
    "verifier",
    "verify",
]


DEFAULT = MathVerifier()


def verify(completion: str, *, gold: str | None, verifier: object = "math") -> Verdict:
    r"""The verdict on one completion.

    Args:
        completion: the response of a model, any text.
        gold: the reference answer, or a worked solution that ends in it. By name only: swapped
            arguments would be scored, and wrongly.
        verifier: a reference as `load_verifier` takes it.

    >>> verify(r"So it is \boxed{\frac12}.", gold="0.5").correct
    True
    >>> verify("I do not know.", gold="0.5").reason
    <Reason.NO_ANSWER: 'no_answer'>
    """
    # The name of the default is not looked up among installed packages each time: that takes 3 ms.
    mark = DEFAULT if verifier == "math" else load_verifier(verifier)  # type: ignore[arg-type]
    return mark([Item(Problem("0", "", gold), completion)])[0]
