r"""Matrices and vectors: entries, shapes, and what sums, products and determinants come to."""

from __future__ import annotations

from collections.abc import Sequence

from .comparison import Compare, Comparison, every, no
from .limits import TooLarge, Unreadable
from .literals import ZERO, negative
from .tree import Binary, Call, Group, Matrix, Node, Number, Relation, Symbol

__all__ = ["compare_matrices", "determinant", "has_matrix", "worked_out"]

MAX_ENTRIES = 100
"""Most entries of a product that is worked out."""
MAX_DETERMINANT = 4
"""Largest determinant that is expanded: 4 x 4 has 24 products."""

Rows = tuple[tuple[Node, ...], ...]


def has_matrix(node: Node) -> bool:
    """Whether a matrix stands anywhere in sums, products, powers and single brackets."""
    match node:
        case Matrix():
            return True
        case Binary(_, left, right):
            return has_matrix(left) or has_matrix(right)
        case Group(_, (item,)) | Relation(("=",), (_, item)):
            return has_matrix(item)
        case Call(("transpose" | "det"), args):
            return any(has_matrix(arg) for arg in args)
    return False


def compare_matrices(left: Node, right: Node, compare: Compare) -> Comparison:
    """Whether two nodes, at least one with a matrix, are the same matrix or vector."""
    one, other = worked_out(left), worked_out(right)
    a, b = (node.rows if isinstance(node, Matrix) else _row(node) for node in (one, other))
    if a is None or b is None:
        if isinstance(one, Matrix) or isinstance(other, Matrix):
            return no("matrix against something else")
        return compare(one, other)
    if len(b) == 1 and len(a) == len(b[0]) and not isinstance(other, Matrix):
        b = tuple((x,) for x in b[0])
    if len(a) == 1 and len(b) == len(a[0]) and not isinstance(one, Matrix):
        a = tuple((x,) for x in a[0])
    if len(a) != len(b) or len(a[0]) != len(b[0]):
        return no("matrix shape")
    pairs = ((x, y) for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True))
    return every([compare(x, y) for x, y in pairs], "matrix, entry by entry")


def _row(node: Node) -> Rows | None:
    """A tuple as the one row of a matrix; lists of rows as its rows."""
    if not isinstance(node, Group) or node.brackets not in ("()", "[]"):
        return None
    if node.brackets == "[]" and all(
        isinstance(item, Group) and item.brackets == "[]" for item in node.items
    ):
        rows = tuple(item.items for item in node.items if isinstance(item, Group))
        return rows if len({len(row) for row in rows}) == 1 else None
    return (node.items,)


def worked_out(node: Node) -> Node:
    """An expression over matrices as one matrix; others unchanged.

    Raises:
        Unreadable: shapes that cannot be added or multiplied.
        TooLarge: a product of more entries than are worked out.
    """
    match node:
        case Group(_, (item,)) | Relation(("=",), (Symbol(), item)) if has_matrix(item):
            return worked_out(item)
        case Call("transpose", (item,)):
            inner = worked_out(item)
            return Matrix(tuple(zip(*inner.rows, strict=True))) if _is(inner) else node  # type: ignore[union-attr]
        case Call("det", (item,)):
            inner = worked_out(item)
            return determinant(inner.rows) if isinstance(inner, Matrix) else node
        case Binary("^", base, Symbol("T")):
            return worked_out(Call("transpose", (base,)))
        case Binary(op, left, right) if has_matrix(node):
            return _binary(op, worked_out(left), worked_out(right))
    return node


def _is(node: Node) -> bool:
    return isinstance(node, Matrix)


def _binary(op: str, left: Node, right: Node) -> Node:
    if op in "+-" and isinstance(left, Matrix) and isinstance(right, Matrix):
        if len(left.rows) != len(right.rows) or len(left.rows[0]) != len(right.rows[0]):
            raise Unreadable("a sum of matrices of different shapes")
        return Matrix(
            tuple(
                tuple(Binary(op, x, y) for x, y in zip(r, s, strict=True))
                for r, s in zip(left.rows, right.rows, strict=True)
            )
        )
    if op == "-" and left == ZERO and isinstance(right, Matrix):
        return Matrix(tuple(tuple(negative(x) for x in row) for row in right.rows))
    if op == "*" and isinstance(left, Matrix) and isinstance(right, Matrix):
        return _product(left.rows, right.rows)
    if op == "*" and isinstance(right, Matrix):
        return Matrix(tuple(tuple(Binary("*", left, x) for x in row) for row in right.rows))
    if op in "*/" and isinstance(left, Matrix) and not isinstance(right, Matrix):
        return Matrix(tuple(tuple(Binary(op, x, right) for x in row) for row in left.rows))
    if op == "^" and isinstance(left, Matrix) and isinstance(right, Number):
        if right.value in (1, 2, 3, 4):
            out = left
            for _ in range(int(right.value) - 1):
                out = _product(out.rows, left.rows)
            return out
        if right.value == -1:
            return _inverse(left.rows)
    if not isinstance(left, Matrix) and not isinstance(right, Matrix):
        return Binary(op, left, right)
    raise Unreadable(f"the operation {op!r} on a matrix")


def _product(left: Rows, right: Rows) -> Matrix:
    if len(left[0]) != len(right):
        raise Unreadable("a product of matrices whose shapes do not fit")
    if len(left) * len(right[0]) * len(right) > MAX_ENTRIES:
        raise TooLarge("a product of large matrices")
    return Matrix(
        tuple(
            tuple(
                _sum([Binary("*", x, y) for x, y in zip(row, column, strict=True)])
                for column in zip(*right, strict=True)
            )
            for row in left
        )
    )


def _inverse(rows: Rows) -> Matrix:
    if len(rows) != 2 or len(rows[0]) != 2:
        raise Unreadable("the inverse of a matrix that is not 2 x 2")
    (a, b), (c, d) = rows
    whole = determinant(rows)
    turned = ((d, negative(b)), (negative(c), a))
    return Matrix(tuple(tuple(Binary("/", x, whole) for x in row) for row in turned))


def determinant(rows: Sequence[Sequence[Node]]) -> Node:
    """The determinant, expanded along the first row.

    Raises:
        Unreadable: the matrix is not square.
        TooLarge: it is larger than 4 x 4.
    """
    size = len(rows)
    if any(len(row) != size for row in rows):
        raise Unreadable("the determinant of a matrix that is not square")
    if size > MAX_DETERMINANT:
        raise TooLarge(f"a determinant larger than {MAX_DETERMINANT} x {MAX_DETERMINANT}")
    if size == 1:
        return rows[0][0]
    terms = []
    for column, entry in enumerate(rows[0]):
        minor = [[*row[:column], *row[column + 1 :]] for row in rows[1:]]
        term = Binary("*", entry, determinant(minor))
        terms.append(negative(term) if column % 2 else term)
    return _sum(terms)


def _sum(terms: Sequence[Node]) -> Node:
    total = terms[0]
    for term in terms[1:]:
        total = Binary("+", total, term)
    return total
