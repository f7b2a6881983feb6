"""Running, grading and comparing; the benchmark table."""

if __name__ == "evals":
    raise ImportError(
        "This folder is the source of stepmark.evals: import that name. "
        "For another project's package named 'evals', run outside this checkout."
    )

from .compare import Comparison, compare, graded_of
from .grade import grade
from .policy import evaluate_policy, sample_policy
from .recorded import Columns
from .regrade import Regrade, RegradedGroup, regrade
from .result import METRICS, About, EvalResult, summarise
from .running import check_run, run, weights_hash
from .show import show
from .table import find_runs, read_result, table, table_json, table_text

__all__ = [
    "METRICS",
    "About",
    "Columns",
    "Comparison",
    "EvalResult",
    "Regrade",
    "RegradedGroup",
    "check_run",
    "compare",
    "evaluate_policy",
    "find_runs",
    "grade",
    "graded_of",
    "read_result",
    "regrade",
    "run",
    "sample_policy",
    "show",
    "summarise",
    "table",
    "table_json",
    "table_text",
    "weights_hash",
]
