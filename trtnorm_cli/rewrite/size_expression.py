"""Sizes that PyTorch's exporter writes as arithmetic of symbols, as in ``2*(s0//4)``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def size_of(stated: int | str | None, values: Mapping[str, int]) -> int | None:
    """The size that is ``stated``, where its symbols have ``values``; None when that cannot be told."""
    if not isinstance(stated, str):
        return stated
    if stated in values:
        return values[stated]
    try:
        return _evaluate(ast.parse(stated, mode="eval").body, values)
    except (SyntaxError, ZeroDivisionError, RecursionError):
        return None


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _evaluate(node.left, values), _evaluate(node.right, values)
    return None if left is None or right is None else int(_OPERATORS[type(node.op)](left, right))
