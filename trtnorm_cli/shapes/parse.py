"""Expressions and conditions of sizes in text form, as torch.export and sympy print their guards."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from trtnorm_cli.shapes.condition import (
    at_most,
    below,
    both,
    different,
    either,
    equal,
    maximum,
    minimum,
    negation,
)
from trtnorm_cli.shapes.expression import Size, ceil_divide, floor_divide, modulo, product_of, symbol


class NotAnExpression(ValueError):
    """The text is no integer expression of symbols."""


_MOST_CHARACTERS = 10_000
_LARGEST_POWER = 8

_FUNCTIONS: dict[str, Callable[..., Size]] = {
    "Mod": modulo,
    "PythonMod": modulo,
    "mod": modulo,
    "FloorDiv": floor_divide,
    "CleanDiv": floor_divide,
    "floordiv": floor_divide,
    "CeilDiv": ceil_divide,
    "ceildiv": ceil_divide,
    "Max": maximum,
    "max": maximum,
    "Min": minimum,
    "min": minimum,
    "Eq": equal,
    "Ne": different,
    "Le": at_most,
    "Lt": below,
    "Ge": lambda a, b: at_most(b, a),
    "Gt": lambda a, b: below(b, a),
    "And": both,
    "Or": either,
    "Not": negation,
    "not": negation,
}
_ROUNDED_QUOTIENTS: dict[str, Callable[[Size, Size], Size]] = {
    "floor": floor_divide,
    "Floor": floor_divide,
    "FloorToInt": floor_divide,
    "ceiling": ceil_divide,
    "ceil": ceil_divide,
    "CeilToInt": ceil_divide,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Size, Size], Size]] = {
    ast.Eq: equal,
    ast.NotEq: different,
    ast.LtE: at_most,
    ast.Lt: below,
    ast.GtE: lambda a, b: at_most(b, a),
    ast.Gt: lambda a, b: below(b, a),
}
_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floor_divide,
    ast.Mod: modulo,
}


def is_function(name: str) -> bool:
    """True for the name of a function, which is no symbol."""
    return name in _FUNCTIONS or name in _ROUNDED_QUOTIENTS


def parse_expression(text: str, symbols: Mapping[str, Size] | None = None) -> Size:
    """Read ``2*((H - 1)//16) + 2``, ``Eq(Mod((H - 1)//4 - 1, 2), 0)`` or ``H % 8 == 0``. A condition is 1 where it holds.

    A name stands for ``symbols[name]``, or else for a symbol of that name that is at least 1. ``/`` is read inside ``floor``
    and ``ceiling`` only. Raises ``NotAnExpression`` for anything else.
    """
    if len(text) > _MOST_CHARACTERS:
        raise NotAnExpression(f"longer than {_MOST_CHARACTERS} characters")
    try:
        return _Reader(symbols or {}).read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise NotAnExpression(f"cannot read {text!r}: {error}") from error


class _Reader:
    def __init__(self, symbols: Mapping[str, Size]) -> None:
        self._symbols = symbols

    def read(self, node: ast.expr) -> Size:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        if isinstance(node, ast.Name):
            return self._symbols[node.id] if node.id in self._symbols else symbol(node.id)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            return (both if isinstance(node.op, ast.And) else either)(*map(self.read, node.values))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args)
        raise NotAnExpression(f"cannot read {ast.unparse(node)!r}")

    def _binary(self, node: ast.BinOp) -> Size:
        if isinstance(node.op, ast.Pow):
            power = self.read(node.right)
            if isinstance(power, int) and 0 <= power <= _LARGEST_POWER:
                return product_of([self.read(node.left)] * power)
        if type(node.op) not in _OPERATORS:
            raise NotAnExpression(f"cannot read {ast.unparse(node)!r}")
        return _OPERATORS[type(node.op)](self.read(node.left), self.read(node.right))

    def _unary(self, node: ast.UnaryOp) -> Size:
        value = self.read(node.operand)
        if isinstance(node.op, ast.USub):
            return -value
        return negation(value) if isinstance(node.op, ast.Not) else value

    def _comparison(self, node: ast.Compare) -> Size:
        sides = [self.read(side) for side in (node.left, *node.comparators)]
        unknown = [op for op in node.ops if type(op) not in _COMPARISONS]
        if unknown:
            raise NotAnExpression(f"cannot read {ast.unparse(node)!r}")
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return both(*(_COMPARISONS[type(op)](left, right) for op, left, right in pairs))

    def _call(self, name: str, args: list[ast.expr]) -> Size:
        if name in _ROUNDED_QUOTIENTS and len(args) == 1:
            if isinstance(args[0], ast.BinOp) and isinstance(args[0].op, ast.Div):
                return _ROUNDED_QUOTIENTS[name](self.read(args[0].left), self.read(args[0].right))
            return self.read(args[0])
        if name not in _FUNCTIONS:
            raise NotAnExpression(f"the function {name!r} is not known")
        return _FUNCTIONS[name](*map(self.read, args))
