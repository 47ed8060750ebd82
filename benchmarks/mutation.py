"""The small changes of a Python text that a test should notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_SHOWN = 90


@dataclass(frozen=True)
class Mutation:
    """One change: in ``function``, ``before`` becomes ``after`` in lines ``line`` to ``last_line``.

    ``start`` and ``end`` are bytes of the text, between which ``written`` comes.
    """

    function: str
    line: int
    last_line: int
    before: str
    after: str
    start: int
    end: int
    written: str

    def applied(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.written.encode() + raw[self.end :]).decode()

    def is_python(self, text: str) -> bool:
        try:
            compile(self.applied(text), "mutant", "exec")
        except SyntaxError:
            return False
        return True


def mutations(text: str) -> Iterator[Mutation]:
    """Every change: of comparisons, arithmetic, conditions, numbers, and statements that are left out.

    Annotations, docstrings, assertions and what stands at the top of a module are left alone, and so are words of messages.
    """
    raw, offsets = text.encode(), [0]
    for line in raw.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for function, node in _candidates(ast.parse(text)):
        start = offsets[node.lineno - 1] + node.col_offset
        last = node.end_lineno or node.lineno
        end = offsets[last - 1] + (node.end_col_offset or 0)
        for changed in _changed(node):
            # Brackets keep an expression one expression where it stands in another.
            written = f"({changed})" if isinstance(node, ast.expr) else changed
            yield Mutation(function, node.lineno, last, _short(raw[start:end].decode()), _short(changed), start, end, written)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _candidates(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Nodes within functions and the function's name, without annotations, docstrings, assertions and texts put together."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    seen: set[int] = set()
    for function in functions:
        waiting: list[ast.AST] = list(function.body)
        while waiting:
            node = waiting.pop(0)
            if id(node) in seen or isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.ClassDef | ast.Assert):
                continue
            seen.add(id(node))
            if isinstance(node, ast.expr | ast.stmt):
                yield function.name, node
            annotation = getattr(node, "annotation", None)
            waiting += [child for child in ast.iter_child_nodes(node) if child is not annotation and not _asserts(child)]


def _asserts(node: ast.AST) -> bool:
    """True for the ``strict`` of zip, which a correct program never needs."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _changed(node: ast.expr | ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[place] = _COMPARED[type(operator)]()
            yield ast.unparse(other)
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not _is_text(node):
        yield ast.unparse(ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values))
        for place in range(len(node.values)):
            left = [value for number, value in enumerate(node.values) if number != place]
            yield ast.unparse(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield ast.unparse(node.body)
        yield ast.unparse(node.orelse)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Raise | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "pass"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
        yield "return None"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str)) for side in sides
    )


def _is_nothing(node: ast.expr) -> bool:
    """True of None and False, which are as good as each other to whoever asks."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)
