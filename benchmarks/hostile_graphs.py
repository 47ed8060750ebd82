"""Graphs that go round in circles, contradict themselves, or are very many nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper

from benchmarks.hostile_cases import MODEL, SHAPE, Case, built, edited, field, held, node, save, sound_model

FAMILY = "graphs"
make = helper.make_node


def _value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def chain(count: int, operator: str = "Relu") -> list[NodeProto]:
    """So many nodes in a row, from x to y."""
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    return [make(operator, [names[i]], [names[i + 1]], name=f"n{i}") for i in range(count)]


def _many(folder: Path, in_a_row: bool, count: int = 1_000_000) -> None:
    """So many nodes from t0000000 to y, written as bytes: as messages they would take longer than what is tested."""
    names = ("a0000000", "b0000000")
    form = field(1, b"".join(field(place, name.encode()) for place, name in ((1, names[0]), (2, names[1]), (4, "Relu"))))
    form = form.replace(b"a0000000", b"t%07d").replace(b"b0000000", b"t%07d")
    nodes = b"".join(form % (i if in_a_row else 0, i + 1) for i in range(count))
    model = sound_model("g (float[1,4,6,6] t0000000) => (float[1,4,6,6] y) { y = Relu(t0000000) }")
    node(model, "Relu").input[0] = f"t{count:07d}"
    (folder / MODEL).write_bytes(field(7, nodes) + model.SerializeToString())


def _functions(count: int, calls: Callable[[int], Sequence[int]], folder: Path) -> None:
    """``count`` functions, each of which calls those that ``calls`` gives, one after the other."""
    model = sound_model("g (float[1,4,6,6] x) => (float[1,4,6,6] y) { y = Relu(x) }")
    model.opset_import.append(helper.make_opsetid("d", 1))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    for number in range(count):
        called = calls(number)
        names = ["a", *(f"b{i}" for i in range(len(called) - 1)), "r"]
        body = [make(f"F{n}", [names[i]], [names[i + 1]], domain="d") for i, n in enumerate(called)]
        model.functions.append(
            helper.make_function("d", f"F{number}", ["a"], ["r"], body or [make("Relu", ["a"], ["r"])], imports)
        )
    del model.graph.node[:]
    model.graph.node.append(make(f"F{count - 1}", ["x"], ["y"], domain="d"))
    save(model, folder)


def _branches(depth: int) -> list[NodeProto]:
    """An If in an If in an If."""
    inner: list[NodeProto] = [make("Relu", ["x"], ["r"])]
    for level in range(depth):
        graph = helper.make_graph(inner, f"b{level}", [], [_value("r")])
        inner = (
            [make("If", ["c"], ["r"], then_branch=graph, else_branch=graph)]
            if level < 4
            else [
                make(
                    "If",
                    ["c"],
                    ["r"],
                    then_branch=graph,
                    else_branch=helper.make_graph([make("Relu", ["x"], ["r"])], "e", [], [_value("r")]),
                )
            ]
        )
    return [
        *inner[:-1],
        make(
            "If",
            ["c"],
            ["y"],
            then_branch=helper.make_graph(inner, "t", [], [_value("r")]),
            else_branch=helper.make_graph([make("Relu", ["x"], ["r"])], "e", [], [_value("r")]),
        ),
    ]


def _loop_body(nodes: Sequence[NodeProto], state: int = 1) -> GraphProto:
    inputs = [_value("i", TensorProto.INT64, []), _value("c", TensorProto.BOOL, []), _value("s")]
    return helper.make_graph(
        list(nodes), "body", inputs[: 2 + state], [_value("c_out", TensorProto.BOOL, []), _value("s_out")][: 1 + state]
    )


def _loop(trips: int) -> list[NodeProto]:
    body = _loop_body([make("Identity", ["c"], ["c_out"]), make("Relu", ["s"], ["s_out"])])
    return [
        make("Constant", [], ["m"], value=helper.make_tensor("", TensorProto.INT64, [], [trips])),
        make("Constant", [], ["c0"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
        make("Loop", ["m", "c0", "x"], ["y"], body=body),
    ]


def _constant_loop(trips: int) -> list[NodeProto]:
    """A Loop whose inputs are all constants, and which collects what it makes."""
    inputs = [_value("i", TensorProto.INT64, []), _value("c", TensorProto.BOOL, [])]
    outputs = [_value("c_out", TensorProto.BOOL, []), _value("k", TensorProto.INT64, [])]
    body = helper.make_graph([make("Identity", ["c"], ["c_out"]), make("Identity", ["i"], ["k"])], "body", inputs, outputs)
    return [
        make("Constant", [], ["m"], value=helper.make_tensor("", TensorProto.INT64, [], [trips])),
        make("Constant", [], ["c0"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
        make("Loop", ["m", "c0"], ["all"], body=body),
        make("ReduceMax", ["all"], ["top"]),
        make("Cast", ["top"], ["f"], to=TensorProto.FLOAT),
        make("Add", ["x", "f"], ["y"]),
    ]


def _doubling(operator: str, count: int) -> list[NodeProto]:
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    extra = {"axis": 0} if operator == "Concat" else {}
    return [make(operator, [names[i]] * 2, [names[i + 1]], **extra) for i in range(count)]


def _doubled_sizes(count: int) -> list[NodeProto]:
    """Sizes that are added to themselves: 2^count of them."""
    nodes = [make("Shape", ["x"], ["s0"])]
    nodes += [make("Add", [f"s{i}", f"s{i}"], [f"s{i + 1}"]) for i in range(count)]
    return [*nodes, make("Expand", ["x", f"s{count}"], ["y"])]


def _wide(count: int) -> list[NodeProto]:
    return [*(make("Relu", ["x"], [f"t{i}"]) for i in range(count)), make("Sum", [f"t{i}" for i in range(count)], ["y"])]


def _norms(count: int) -> Callable[[], list[NodeProto]]:
    def nodes() -> list[NodeProto]:
        names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
        return [make("BatchNormalization", [names[i], "g", "g", "g", "v"], [names[i + 1]]) for i in range(count)]

    return nodes


def _weights() -> dict[str, np.ndarray]:
    return {"g": np.ones(4, np.float32), "v": np.ones(4, np.float32)}


def _cycle(model: onnx.ModelProto) -> None:
    node(model, "Conv").input[0] = "y"


def _cycle_in_a_branch(model: onnx.ModelProto) -> None:
    branch = helper.make_graph([make("Identity", ["y"], ["r"])], "b", [], [_value("r")])
    model.graph.input.append(_value("c", TensorProto.BOOL, []))
    model.graph.node.insert(0, make("If", ["c"], ["z"], then_branch=branch, else_branch=branch))
    node(model, "Conv").input[0] = "z"


def _same_function_twice(model: onnx.ModelProto) -> None:
    for body in ("Neg", "Relu"):
        model.functions.append(
            helper.make_function("d", "F", ["a"], ["r"], [make(body, ["a"], ["r"])], [helper.make_opsetid("", 17)])
        )
    model.opset_import.append(helper.make_opsetid("d", 1))
    node(model, "Relu").domain = "d"
    node(model, "Relu").op_type = "F"


def _no_output(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _shadowed(model: onnx.ModelProto) -> None:
    branch = helper.make_graph([make("Neg", ["x"], ["b"])], "b", [], [_value("b")])
    model.graph.input.append(_value("c", TensorProto.BOOL, []))
    model.graph.node.append(make("If", ["c"], ["z"], then_branch=branch, else_branch=branch))


def _unreached(model: onnx.ModelProto) -> None:
    node(model, "Relu").input[0] = "nowhere"


def _all_initializers(model: onnx.ModelProto) -> None:
    for i in range(100_000):
        model.graph.initializer.append(helper.make_tensor(f"u{i}", TensorProto.FLOAT, [1], [1.0]))


def _function_of_itself_in_a_branch(model: onnx.ModelProto) -> None:
    call = make("F", ["a"], ["r"], domain="d")
    branch = helper.make_graph([call], "b", [], [_value("r")])
    body = [
        make("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
        make("If", ["c"], ["r"], then_branch=branch, else_branch=branch),
    ]
    model.functions.append(
        helper.make_function("d", "F", ["a"], ["r"], body, [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)])
    )
    model.opset_import.append(helper.make_opsetid("d", 1))
    node(model, "Relu").domain = "d"
    node(model, "Relu").op_type = "F"


def _function_with_wrong_arity(model: onnx.ModelProto) -> None:
    made: FunctionProto = helper.make_function(
        "d", "F", [], ["r", "s"], [make("Relu", ["q"], ["r"])], [helper.make_opsetid("", 17)]
    )
    model.functions.append(made)
    model.opset_import.append(helper.make_opsetid("d", 1))
    node(model, "Relu").domain = "d"
    node(model, "Relu").op_type = "F"


def _edited(name: str, edit: Callable[[onnx.ModelProto], object], is_sound: bool = False) -> Case:
    return Case(FAMILY, name, edited(edit), is_sound)


_C = (_value("x", shape=SHAPE), _value("c", TensorProto.BOOL, []))


def cases() -> Iterator[Case]:
    """All of this family."""
    yield _edited("a circle", _cycle)
    yield _edited("a node that reads itself", lambda m: node(m, "Relu").input.__setitem__(0, "y"))
    yield _edited("a circle through a branch", _cycle_in_a_branch)
    yield Case(FAMILY, "a function that calls itself", lambda f: _functions(1, lambda n: [0], f))
    yield Case(FAMILY, "two functions that call each other", lambda f: _functions(2, lambda n: [1 - n], f))
    yield _edited("a function that calls itself in a branch", _function_of_itself_in_a_branch)
    yield Case(
        FAMILY,
        "functions that call the one before twice, 40 deep",
        lambda f: _functions(40, lambda n: [n - 1] * 2 if n else [], f),
    )
    yield Case(
        FAMILY,
        "functions that call the one before ten times, 9 deep",
        lambda f: _functions(9, lambda n: [n - 1] * 10 if n else [], f),
    )
    yield Case(FAMILY, "functions 2000 deep", lambda f: _functions(2000, lambda n: [n - 1] if n else [], f))
    yield _edited("one function in two versions", _same_function_twice)
    yield _edited("a function with other inputs than its calls", _function_with_wrong_arity)
    yield _edited("two nodes that write one tensor", lambda m: m.graph.node.append(make("Neg", ["x"], ["b"])))
    yield _edited("two nodes of one name", lambda m: [n.__setattr__("name", "n") for n in m.graph.node], is_sound=True)
    yield _edited("an output listed twice", lambda m: m.graph.output.append(m.graph.output[0]))
    yield _edited("an input listed twice", lambda m: m.graph.input.append(m.graph.input[0]))
    yield _edited(
        "an initializer with two values",
        lambda m: m.graph.initializer.append(helper.make_tensor("gamma", TensorProto.FLOAT, [4], [9.0] * 4)),
    )
    yield _edited("an initializer that a node writes too", lambda m: m.graph.node.append(make("Neg", ["x"], ["gamma"])))
    yield _edited("an input that a node writes too", lambda m: m.graph.node.append(make("Neg", ["b"], ["x"])))
    yield _edited("an output that nothing makes", lambda m: m.graph.output.append(_value("nowhere")))
    yield _edited("an input of a node that nothing makes", _unreached)
    yield _edited("an output that is an input", lambda m: m.graph.output.append(m.graph.input[0]))
    yield _edited("an output without a name", lambda m: m.graph.output[0].__setattr__("name", ""))
    yield _edited("no outputs", _no_output)
    yield _edited("no nodes", lambda m: m.graph.ClearField("node"))
    yield _edited("no inputs and no outputs of a node", lambda m: m.graph.node.append(make("Relu", [], [])))
    yield _edited("a node without an operator", lambda m: node(m, "Relu").__setattr__("op_type", ""))
    yield _edited("a name of the outer graph written in a branch", _shadowed)
    yield _edited("nodes in the wrong order", lambda m: m.graph.node.reverse(), is_sound=True)
    yield Case(FAMILY, "20,000 nodes in the wrong order", built(lambda: chain(20_000)[::-1]), is_sound=True)
    yield Case(FAMILY, "20,000 nodes in a row", built(lambda: chain(20_000)), is_sound=True)
    yield Case(FAMILY, "300 BatchNormalizations in a row", built(_norms(300), _weights), is_sound=True)
    yield Case(FAMILY, "10^6 nodes in a row", lambda f: _many(f, in_a_row=True))
    yield Case(FAMILY, "10^6 nodes that nothing reads", lambda f: _many(f, in_a_row=False))
    yield Case(FAMILY, "10^5 readers of one tensor, added in one node", built(lambda: _wide(100_000)))
    yield _edited("10^5 initializers that nothing reads", _all_initializers)
    yield Case(
        FAMILY,
        "10^5 outputs",
        built(lambda: [make("Relu", ["x"], [f"y{i}"]) for i in range(100_000)], outputs=[f"y{i}" for i in range(100_000)]),
    )
    yield Case(
        FAMILY,
        "10^5 inputs",
        built(lambda: chain(1), inputs=[_value("x", shape=SHAPE), *(_value(f"x{i}", shape=[1]) for i in range(100_000))]),
    )
    yield Case(
        FAMILY, "a node of 10^6 attributes", built(lambda: [make("Relu", ["x"], ["y"], **{f"a{i}": i for i in range(100_000)})])
    )
    yield Case(FAMILY, "branches 20 deep", built(lambda: _branches(16), inputs=_C), is_sound=True)
    yield Case(FAMILY, "branches 32 deep", built(lambda: _branches(31), inputs=_C))
    yield Case(FAMILY, "a Loop of 2^33 steps", built(lambda: _loop(1 << 33)))
    yield Case(FAMILY, "a Loop of 2^63 - 1 steps", built(lambda: _loop((1 << 63) - 1)))
    yield Case(FAMILY, "a Loop of 2^33 steps over constants", built(lambda: _constant_loop(1 << 33)))
    yield Case(FAMILY, "a Loop of 1000 steps over constants", built(lambda: _constant_loop(1000)), is_sound=True)
    yield Case(FAMILY, "a tensor added to itself 200 times", built(lambda: _doubling("Add", 200)), is_sound=True)
    yield Case(FAMILY, "a tensor joined to itself 12 times", built(lambda: _doubling("Concat", 12)), is_sound=True)
    yield Case(FAMILY, "a tensor joined to itself 40 times", built(lambda: _doubling("Concat", 40)))
    yield Case(FAMILY, "sizes doubled 70 times", built(lambda: _doubled_sizes(70)))
    yield Case(
        FAMILY, "sizes of an open axis doubled 200 times", built(lambda: _doubled_sizes(200), inputs=[_value("x", shape=None)])
    )


assert held
