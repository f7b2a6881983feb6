"""Step labels of other projects, read into one kind of row; see docs/prm-data.md.

A format of your own is a class with ``name``, ``matches(row)`` and ``read(row)``, registered under
the entry-point group ``stepmark.prm_formats``, by ``formats.register`` or named ``file.py:Class``.
"""

from .balance import LabelBalance, label_balance
from .convert import Conversion, convert_file
from .registry import StepFormat, formats, guess_format, load_format
from .rejects import LeftOut, Rejected, RejectReason
from .repairs import Repairs
from .rows import labelled_steps, problem_id, row_id, write_labelled_steps

__all__ = [
    "Conversion",
    "LabelBalance",
    "LeftOut",
    "RejectReason",
    "Rejected",
    "Repairs",
    "StepFormat",
    "convert_file",
    "formats",
    "guess_format",
    "label_balance",
    "labelled_steps",
    "load_format",
    "problem_id",
    "row_id",
    "write_labelled_steps",
]
