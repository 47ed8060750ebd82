"""Follow inputs forward through operators that keep their values or shift and scale them, to the operators that use them.

One pass over the nodes, in the order of the file, into subgraphs as well. Few tensors are reached, because convolutions, matrix
products and normalizations end every way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

import onnx

from trtnorm_cli.evaluate.data.tensor_facts import Facts, Scope
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13, 21, 22})
_BOOL = onnx.TensorProto.BOOL
_DOMAINS = (*DEFAULT_DOMAINS, "com.microsoft")

# Operators whose output holds the elements of these operands, as they are; None stands for all operands.
_MOVES: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys((
        "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose", "Tile", "Slice", "Split", "Gather",
        "GatherElements", "GatherND", "Pad", "Compress", "Trilu", "ReverseSequence", "Dropout", "DepthToSpace", "SpaceToDepth",
        "TopK", "SplitToSequence", "SequenceAt", "ConcatFromSequence", "Unique", "Upsample", "Resize", "MaxPool",
    ), (0,)),
    "Concat": None, "SequenceConstruct": None, "Where": (1, 2),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), (0, 2)),
}  # fmt: skip
# Operators that change values in a way that can be followed back.
_CHANGES: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Min", "Max", "Sum"), None),
    **dict.fromkeys(("Div", "Mod", "Neg", "Abs", "Clip", "Floor", "Ceil", "Round", "Sign", "Cast", "CastLike", "Not"), (0,)),
    **dict.fromkeys(("CumSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"), (0,)),
    **dict.fromkeys(("And", "Or", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), None),
    **dict.fromkeys(("MatMul", "Einsum"), None),
}
_TRUTH = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or"})
_TWO_OPERANDS = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max", "Sum"})
_PRODUCTS = frozenset({"MatMul", "Einsum"})


@dataclass(eq=False)
class Reached:
    """A tensor that holds values of an input. ``whole`` is False for floating types, ``truth`` True for booleans.

    ``roots`` are the inputs that it comes from. ``counted`` is True where these are integers or booleans.
    """

    name: str
    roots: frozenset[str]
    whole: bool
    truth: bool
    counted: bool


@dataclass(eq=False)
class Site:
    """One node with the reached tensors that it reads, by position, and those that it makes of them."""

    node: onnx.NodeProto
    scope: Scope
    facts: Facts
    opset: int
    reads: dict[int, Reached] = field(default_factory=dict)
    makes: dict[int, Reached] = field(default_factory=dict)

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((int(a.i) for a in self.node.attribute if a.name == name), default)

    def text(self, name: str, default: str = "") -> str:
        return next((a.s.decode() for a in self.node.attribute if a.name == name), default)

    def has(self, position: int) -> bool:
        return position < len(self.node.input) and bool(self.node.input[position])

    def shape(self, position: int) -> tuple[int | None, ...] | None:
        return self.facts.shape(self.scope, self.node.input[position]) if self.has(position) else None

    def size(self, position: int, axis: int) -> int | None:
        """The size of one axis of an operand, counted from the end where ``axis`` is negative."""
        shape = self.shape(position)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def rank(self, position: int) -> int | None:
        shape = self.shape(position)
        return None if shape is None else len(shape)

    def bounds(self, position: int) -> tuple[int | float, int | float] | None:
        return self.facts.bounds(self.scope, self.node.input[position]) if self.has(position) else None

    def constant(self, position: int) -> int | float | None:
        """The value of an operand all of whose elements are equal."""
        bounds = self.bounds(position)
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None

    def elements(self, position: int) -> int | None:
        """The number of elements of an operand before it was repeated."""
        shape = self.facts.shape(*self.facts.origin(self.scope, self.node.input[position]))
        known = [size for size in shape or () if size is not None]
        return math.prod(known) if shape is not None and len(known) == len(shape) else None

    def source(self, position: int) -> str:
        """The name of the tensor that an operand's elements come from."""
        return self.facts.origin(self.scope, self.node.input[position]).name

    def is_constant(self, position: int) -> bool:
        """True where an operand stands in the file, or is computed from sizes alone."""
        found = self.facts.origin(self.scope, self.node.input[position])
        produced = self.facts.producer(found)
        return found.name in found.scope.initializers or (
            produced is not None and (produced.op_type == "Constant" or self.facts.is_size(found))
        )


def reach(model: onnx.ModelProto, roots: Mapping[str, int], facts: Facts) -> tuple[dict[str, Reached], list[Site]]:
    """The nodes, in order, that each of the ``roots`` (name and element type) reaches. Functions are inlined already."""
    walk = _Walk(facts, {entry.domain or "": entry.version for entry in model.opset_import})
    start = {name: _reached(name, frozenset({name}), kind, kind in _INTEGERS or kind == _BOOL) for name, kind in roots.items()}
    walk.active.update(start)
    walk.graph(Scope(model.graph))
    return start, walk.sites


def _reached(name: str, roots: frozenset[str], kind: int, counted: bool) -> Reached:
    return Reached(name, roots, kind in _INTEGERS or kind == _BOOL, kind == _BOOL, counted)


class _Walk:
    def __init__(self, facts: Facts, opsets: Mapping[str, int]) -> None:
        self._facts = facts
        self._opset = opsets.get("", opsets.get("ai.onnx", 1))
        self.active: dict[str, Reached] = {}
        self.sites: list[Site] = []

    def graph(self, scope: Scope) -> None:
        # A set of names is asked for every node of the model, an object only for the few that are reached.
        names = self.active.keys()
        for node in scope.graph.node:
            operator = node.op_type
            if operator in ("If", "Loop", "Scan"):
                self._control(node, scope)
            elif not names.isdisjoint(node.input):
                self._visit(node, scope)

    def _visit(self, node: onnx.NodeProto, scope: Scope) -> None:
        reads = {i: self.active[name] for i, name in enumerate(node.input) if name in self.active}
        site = Site(node, scope, self._facts, self._opset, reads)
        self.sites.append(site)
        if node.domain not in _DOMAINS:
            return
        through = self._through(site)
        if through:
            outputs = node.output if node.op_type in ("Split", "Unique") else node.output[:1]
            for index, name in enumerate(outputs):
                if name:
                    site.makes[index] = self.active[name] = _made(site, name, through)

    def _through(self, site: Site) -> list[Reached]:
        """The reached operands whose values the output holds."""
        operator = site.node.op_type
        table = _MOVES if operator in _MOVES else _CHANGES
        if operator not in table:
            return []
        positions = table[operator]
        through = [reached for i, reached in site.reads.items() if positions is None or i in positions]
        if operator in _PRODUCTS:
            return [reached for reached in through if reached.counted and not reached.whole]
        if operator in _TWO_OPERANDS and not all(reached.whole for reached in through):
            # What is added to a stream of features is lost in it; a constant shifts and scales.
            others = [i for i in range(len(site.node.input)) if i not in site.reads]
            return through if len(site.reads) == 1 and all(site.is_constant(i) for i in others) else []
        return through

    def _control(self, node: onnx.NodeProto, scope: Scope) -> None:
        self._record_operands(node, scope)
        graphs = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
        for graph in graphs:
            bound = _bindings(node, graph)
            names = [v.name for v in graph.input]
            inner = Scope(graph, scope, bound, frozenset(names[len(names) - scanned :]) if scanned else frozenset())
            outer = dict(self.active)
            for name, actual in bound.items():
                if actual in outer:
                    self.active[name] = outer[actual]
            self.graph(inner)
            left = _leaving(node, graph)
            found = {outside: self.active[inside] for outside, inside in left.items() if inside in self.active}
            self.active.clear()
            self.active.update(outer)
            for outside, reached in found.items():
                self._join(outside, reached)

    def _join(self, name: str, reached: Reached) -> None:
        """Let an output of an If stand for what both branches reach."""
        known = self.active.get(name)
        if known is None or known is reached:
            self.active[name] = reached
            return
        both = Reached(name, known.roots | reached.roots, known.whole, known.truth, known.counted and reached.counted)
        node = onnx.NodeProto(op_type="Where", name=name, input=["", known.name, reached.name], output=[name])
        self.sites.append(Site(node, Scope(onnx.GraphProto()), self._facts, self._opset, {1: known, 2: reached}, {0: both}))
        self.active[name] = both

    def _record_operands(self, node: onnx.NodeProto, scope: Scope) -> None:
        """The condition of an If and a Loop, and a Loop's number of runs, are uses of their own."""
        used = 1 if node.op_type == "If" else 2 if node.op_type == "Loop" else 0
        reads = {i: self.active[name] for i, name in enumerate(node.input[:used]) if name in self.active}
        if reads:
            self.sites.append(Site(node, scope, self._facts, self._opset, reads))


def _made(site: Site, name: str, through: Sequence[Reached]) -> Reached:
    roots: Collection[frozenset[str]] = [reached.roots for reached in through]
    whole, truth = through[0].whole, through[0].truth
    if site.node.op_type in _TRUTH:
        whole = truth = True
    elif site.node.op_type == "Cast":
        kind = site.attribute("to", 1)
        whole, truth = kind in _INTEGERS or kind == _BOOL, kind == _BOOL
    elif site.node.op_type == "CastLike":
        whole = truth = False
    return Reached(name, frozenset().union(*roots), whole, truth, all(reached.counted for reached in through))


def _bindings(node: onnx.NodeProto, graph: onnx.GraphProto) -> dict[str, str]:
    """The outer tensor that each input of a body is at first. The counter and condition of a Loop are its own."""
    if node.op_type == "If":
        return {}
    skipped = 2 if node.op_type == "Loop" else 0
    pairs = zip(graph.input[skipped:], node.input[skipped:], strict=False)
    return {value.name: actual for value, actual in pairs if actual}


def _leaving(node: onnx.NodeProto, graph: onnx.GraphProto) -> dict[str, str]:
    """The tensor of a body that each output of the node is made of."""
    skipped = 1 if node.op_type == "Loop" else 0
    return {outside: value.name for outside, value in zip(node.output, graph.output[skipped:], strict=False) if outside}
