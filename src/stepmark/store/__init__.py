"""Runs and the one sample store: append-only, survives a kill, published by rename."""

from .files import (
    append_rows,
    file_hash,
    publish,
    read_rows,
    rows_hash,
    text_hash,
    write_json,
)
from .lock import Lock
from .manifest import build_manifest
from .run import RunFolder
from .samples import Key, Sample, SampleStore, ScoredSteps

__all__ = [
    "Key",
    "Lock",
    "RunFolder",
    "Sample",
    "SampleStore",
    "ScoredSteps",
    "append_rows",
    "build_manifest",
    "file_hash",
    "publish",
    "read_rows",
    "rows_hash",
    "text_hash",
    "write_json",
]
