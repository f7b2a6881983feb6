r"""The matrix A[i, j]: what the reward model of round i reaches on the held-out rows of round j.

Read from the records of the rounds, so it cannot drift from them. From it (k is the newest round):

.. math:: \mathrm{BWT} = \frac{1}{k} \sum_{j<k} (A_{kj} - A_{jj}), \quad
    \mathrm{gain} = A_{kk} - A_{k-1,k}, \quad F_j = \max_i A_{ij} - A_{kj}

backward transfer, forward gain, and forgetting (Lopez-Paz & Ranzato, arXiv:1706.08840; Chaudhry et
al., arXiv:1801.10112). A rejected round leaves the model as it was, and its row says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from .rounds import finished_rounds

__all__ = ["Matrix", "matrix_of", "matrix_svg"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """F1 by reward model and held-out set, each named by its round."""

    models: tuple[int, ...]
    sets: tuple[int, ...]
    cells: Mapping[tuple[int, int], float]
    """Where known."""
    rejected: frozenset[int] = frozenset()
    """Rounds whose model is the one before it."""

    def backward_transfer(self, model: int) -> float | None:
        """Mean change on earlier sets since each was the newest; None for the first model."""
        pairs = [
            (self.cells[model, j], self.cells[j, j])
            for j in self.sets
            if j < model and (model, j) in self.cells and (j, j) in self.cells
        ]
        return mean(now - then for now, then in pairs) if pairs else None

    def forward_gain(self, model: int) -> float | None:
        """What a refresh brought on its own set."""
        earlier = [i for i in self.models if i < model]
        before = self.cells.get((max(earlier), model)) if earlier else None
        after = self.cells.get((model, model))
        return None if before is None or after is None else after - before

    def forgetting(self, model: int) -> dict[int, float]:
        """By earlier set: how far below the best model so far this one is."""
        return {
            j: max(v for (i, of), v in self.cells.items() if of == j and i <= model)
            - self.cells[model, j]
            for j in self.sets
            if j < model and (model, j) in self.cells
        }

    def to_row(self) -> dict[str, Any]:
        """Cells and figures as plain values."""
        rows = [[self.cells.get((i, j)) for j in self.sets] for i in self.models]
        newest = max(self.models, default=0)
        return {
            "models": list(self.models),
            "sets": list(self.sets),
            "f1": rows,
            "rejected": sorted(self.rejected),
            "backward_transfer": self.backward_transfer(newest),
            "forward_gain": self.forward_gain(newest),
            "forgetting": {str(j): value for j, value in self.forgetting(newest).items()},
        }


def matrix_of(out: Path | str) -> Matrix:
    """The matrix of a folder of rounds; empty before the first."""
    cells: dict[tuple[int, int], float] = {}
    models: set[int] = set()
    sets: set[int] = set()
    rejected: set[int] = set()
    for round, row in finished_rounds(Path(out)).items():
        before, after = int(row["model_before"]), "after" if row["accepted"] else "before"
        rejected |= set() if row["accepted"] else {round}
        models |= {before, round}
        for model, figures in ((before, row["before"]), (round, row[after])):
            for name, found in figures.items():
                if name.isdecimal():
                    sets.add(int(name))
                    if found["value"] is not None:
                        cells[model, int(name)] = found["value"]
    return Matrix(tuple(sorted(models)), tuple(sorted(sets)), cells, frozenset(rejected))


def matrix_svg(matrix: Matrix, title: str = "F1 by reward model and held-out set") -> str:
    """The matrix as a picture.

    Raises:
        SetupError: matplotlib is not installed.
    """
    from stepmark.report import heat_map_svg

    return heat_map_svg(
        [[matrix.cells.get((i, j)) for j in matrix.sets] for i in matrix.models],
        rows=[f"{i}{' (rejected)' if i in matrix.rejected else ''}" for i in matrix.models],
        columns=[str(j) for j in matrix.sets],
        title=title,
        xlabel="held-out rows of round",
        ylabel="model after round",
    )
