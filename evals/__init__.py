"""Running, grading and comparing; the benchmark table."""

if __name__ == "evals":
    raise ImportError(
        "This folder is the source of stepmark.evals: import that name. "
        "For another project's package named 'evals', run outside this checkout."
    )

from .adjudication import Adjudication, read_adjudications
from .compare import Comparison, compare, graded_of
from .golds import BadGold, GoldCheck, check_golds
from .grade import grade
from .joining import join_golds, load_golds
from .measured import Measured
from .metrics import Metric, measure, parse_metrics
from .policy import evaluate_policy, sample_policy
from .recorded import Columns, Recorded, Recording, read_recorded
from .regrade import Regrade, RegradedGroup, regrade, verdict_rows
from .result import METRICS, About, EvalResult, summarise
from .running import check_run, run, weights_hash
from .searching import SearchJob, SearchResult
from .settings import EvalSettings
from .show import show
from .table import find_runs, read_result, table, table_json, table_text

__all__ = [
    "METRICS",
    "About",
    "Adjudication",
    "BadGold",
    "Columns",
    "Comparison",
    "EvalResult",
    "EvalSettings",
    "GoldCheck",
    "Measured",
    "Metric",
    "Recorded",
    "Recording",
    "Regrade",
    "RegradedGroup",
    "SearchJob",
    "SearchResult",
    "check_golds",
    "check_run",
    "compare",
    "evaluate_policy",
    "find_runs",
    "grade",
    "graded_of",
    "join_golds",
    "load_golds",
    "measure",
    "parse_metrics",
    "read_adjudications",
    "read_recorded",
    "read_result",
    "regrade",
    "run",
    "sample_policy",
    "show",
    "summarise",
    "table",
    "table_json",
    "table_text",
    "verdict_rows",
    "weights_hash",
]
