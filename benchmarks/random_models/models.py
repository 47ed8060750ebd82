"""Random valid models around normalizations: chains with branches, functions, loops, open sizes, odd types and Q/DQ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper

from benchmarks.random_models.graph import BFLOAT, DOUBLE, FLOAT, HALF, Dim, Growing, Held
from benchmarks.random_models.norms import NORMS, batch
from benchmarks.random_models.operators import KEEPING, STEPS, convolution, product

OPSETS = (17, 20, 21, 22, 23, 18, 15, 13, 11)
DOMAIN = "local"


class RandomModel(NamedTuple):
    """A model, and the smallest and the largest size of each open dimension."""

    proto: onnx.ModelProto
    sizes: Mapping[str, tuple[int, int]]

    def shapes(self, largest: bool) -> dict[str, tuple[int, ...]]:
        """The shape of each input."""
        return {
            value.name: tuple(
                self.sizes[d.dim_param][largest] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim
            )
            for value in self.proto.graph.input
        }

    def profile(self) -> str:
        """The build profile for these sizes."""
        lines = [f"  {name}: {{min: {low}, opt: {low}, max: {high}}}\n" for name, (low, high) in self.sizes.items()]
        return "dims:\n" + "".join(lines) if lines else ""


@st.composite
def models(draw: Callable[[Any], Any]) -> RandomModel:
    """Valid models of up to a dozen steps."""
    g = Growing(
        draw, draw(st.sampled_from(OPSETS)), draw(st.sampled_from(("initializer", "initializer", "constant", "identity")))
    )
    kind = g.one_of(FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, HALF, DOUBLE, BFLOAT)
    if kind == BFLOAT and g.opset < 22:
        kind = FLOAT
    first = _input(g, kind)
    pool = [first]
    for _ in range(g.number(1, 6)):
        x = pool[-1] if not g.chance(4) else g.one_of(*pool)
        made = _step(g, x, pool)
        if made is not None and all(0 < size < 200 for size in made.sizes):
            pool.append(made)
    outputs = [pool[-1], *(held for held in pool[1:-1] if g.chance(6))]
    return RandomModel(_model(g, outputs), {name: _SIZES[name] for name in sorted(_names(first))})


# The smallest and the largest size of each open dimension.
_SIZES = {"N": (2, 3), "H": (6, 9), "W": (5, 8), "L": (4, 7)}


def _names(x: Held) -> set[str]:
    return {dim.name for dim in x.dims if dim.name}


def _input(g: Growing, kind: int) -> Held:
    rank = g.one_of(4, 3, 2, 4, 5)
    opened = g.one_of("", "N", "NHW", "HW")
    named = {
        2: ["N", "C"],
        3: ["N", "C", "L"] if g.chance(2) else ["N", "L", "C"],
        4: ["N", "C", "H", "W"],
        5: ["N", "C", "L", "H", "W"],
    }
    channels = g.one_of(4, 8, 6)
    dims = []
    for name in named[rank]:
        if name == "C":
            dims.append(Dim(channels))
        else:
            is_open = name in opened or (name == "L" and "H" in opened)
            dims.append(Dim(_SIZES[name][0], name if is_open else ""))
    _declare(g, "x", dims, kind)
    return Held("x", tuple(dims), kind)


def _declare(g: Growing, name: str, dims: list[Dim], kind: int) -> None:
    g.inputs.append(helper.make_tensor_value_info(name, kind, [dim.name or dim.size for dim in dims]))


def _step(g: Growing, x: Held, pool: list[Held]) -> Held | None:
    what = g.one_of("around", "norm", "other", "around", "norm", "other", "join", "body")
    if what == "around":
        return _around(g, x)
    if what == "norm":
        return g.one_of(*NORMS)(g, x)
    if what == "other":
        return g.one_of(*STEPS)(g, x)
    return _joined(g, x, pool) if what == "join" else g.one_of(_branch, _function, _loop)(g, x)


def _around(g: Growing, x: Held) -> Held:
    """Weights and a normalization behind each other, often with something between: what folding and merging are about."""
    weights = g.one_of(convolution, product)
    steps = [weights, g.one_of(batch, batch, *NORMS)]
    if g.chance(2):
        steps.reverse()
    if not g.chance(3):
        steps.insert(1, g.one_of(*STEPS))
    if g.chance(2):
        steps.append(weights)
    for step in steps:
        made = step(g, x)
        if made is not None and max(made.sizes, default=1) < 200:
            x = made
    return x


def _joined(g: Growing, x: Held, pool: list[Held]) -> Held | None:
    """Two tensors added, multiplied or put side by side."""
    others = [held for held in pool if held.dims == x.dims and held.dtype == x.dtype]
    other = g.one_of(*others)
    if len(x.dims) > 1 and not x.dims[1].name and g.chance(3):
        return Held(g.op("Concat", [x.name, other.name], axis=1), (x.dims[0], Dim(2 * x.dims[1].size), *x.dims[2:]), x.dtype)
    return x._replace(name=g.op(g.one_of("Add", "Mul", "Sub", "Max"), [x.name, other.name]))


def _chain(g: Growing, x: Held) -> Held:
    """One to three steps that keep sizes and type."""
    for _ in range(g.number(1, 3)):
        made = g.one_of(*(NORMS if g.chance(2) else KEEPING))(g, x)
        x = made if made is not None else x
    return x


def _body_graph(body: Growing, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[tuple[str, Any]]) -> onnx.GraphProto:
    ends = [helper.make_tensor_value_info(end, kind, None) for end, kind in outputs]
    return helper.make_graph(body.nodes, name, inputs, ends, body.stored)


def _branch(g: Growing, x: Held) -> Held:
    """An If by the sign of a sum."""
    total = g.op("ReduceSum", [g.op("Cast", [x.name], to=FLOAT)], keepdims=0)
    condition = g.op("Greater", [total, g.op("Squeeze", [g.scalar(0.0, FLOAT)])])
    graphs = []
    for name in ("then", "else"):
        body = g.body(g.one_of("constant", "initializer"))
        end = body.unary("Identity", _chain(body, x))
        graphs.append(_body_graph(body, name, [], [(end.name, x.dtype)]))
    return x._replace(name=g.op("If", [condition], then_branch=graphs[0], else_branch=graphs[1]))


def _loop(g: Growing, x: Held) -> Held:
    """A chain that is run a fixed number of times."""
    body = g.body(g.one_of("constant", "initializer"))
    count, going, carried = (body.name(stem) for stem in ("i", "going", "carried"))
    end = body.unary("Identity", _chain(body, x._replace(name=carried)))
    still = body.op("Identity", [going])
    types = [(count, TensorProto.INT64, []), (going, TensorProto.BOOL, []), (carried, x.dtype, None)]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in types]
    graph = _body_graph(body, "loop", inputs, [(still, TensorProto.BOOL), (end.name, x.dtype)])
    trips, goes_on = g.integer(g.number(1, 3)), g.constant(np.array(True))
    return x._replace(name=g.op("Loop", [trips, goes_on, x.name], body=graph))


def _function(g: Growing, x: Held) -> Held:
    """A local function, called once or twice."""
    body = g.body("constant")
    before = len(g.inputs)
    argument = body.name("argument")
    end = body.unary("Identity", _chain(body, x._replace(name=argument)))
    given = [value.name for value in g.inputs[before:]]
    name = g.name("Block")
    imports = [helper.make_opsetid("", g.opset), *(helper.make_opsetid(domain, 1) for domain in sorted(g.domains))]
    g.functions.append(helper.make_function(DOMAIN, name, [argument, *given], [end.name], body.nodes, imports))
    for _ in range(g.one_of(1, 2)):
        x = x._replace(name=g.op(name, [x.name, *given], domain=DOMAIN))
    return x


def _model(g: Growing, outputs: list[Held]) -> onnx.ModelProto:
    ends = []
    for held in dict.fromkeys(outputs):
        name = g.op("Identity", [held.name]) if held.name == "x" else held.name
        ends.append(helper.make_tensor_value_info(name, held.dtype, [dim.name or dim.size for dim in held.dims]))
    graph = helper.make_graph(g.nodes, "random", g.inputs, ends, g.stored)
    imports = [helper.make_opsetid("", g.opset), *(helper.make_opsetid(domain, 1) for domain in sorted(g.domains))]
    ir = 10 if g.opset >= 21 else 8
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=g.functions)
