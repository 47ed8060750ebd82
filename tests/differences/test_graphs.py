"""Two ONNX files held against each other: what is found, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.differences.graphs import graph_diff
from trtnorm_cli.differences.record import Diff, GraphDiff
from trtnorm_cli.onnx_model.load import load_model

WIDTH = 8


def blocks(count: int, seed: int = 0) -> onnx.ModelProto:
    """A residual network of ``count`` blocks with weights of their own."""
    nodes, weights, last, skipped = [], [], "x", "x"
    for number in range(count):
        weights.append(numpy_helper.from_array(random(WIDTH, WIDTH, seed=seed + number), f"w{number}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"], name=f"matmul{number}"),
            helper.make_node("Relu", [f"m{number}"], [f"r{number}"], name=f"relu{number}"),
            helper.make_node("Add", [f"r{number}", skipped], [f"a{number}"], name=f"add{number}"),
        ]
        last = f"a{number}"
        skipped = last if number % 5 == 0 else skipped
    nodes.append(helper.make_node("Softmax", [last], ["y"], name="out", axis=-1))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def renamed(model: onnx.ModelProto, node: Callable[[int], str] = "node_{}".format) -> onnx.ModelProto:
    """``model`` with other names for everything but its outputs."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    graph = copy.graph
    names = {tensor.name: f"weight_{number}" for number, tensor in enumerate(graph.initializer)} | {"x": "image"}
    inner = [name for one in graph.node for name in one.output if name != "y"]
    names |= {name: f"tensor_{number}" for number, name in enumerate(inner)}
    for tensor in (*graph.initializer, *graph.input):
        tensor.name = names[tensor.name]
    for number, one in enumerate(graph.node):
        one.name = node(number)
        one.input[:] = [names.get(name, name) for name in one.input]
        one.output[:] = [names.get(name, name) for name in one.output]
    return copy


def with_inserted(model: onnx.ModelProto, *places: int, operator: str = "Sigmoid") -> onnx.ModelProto:
    """``model`` with an operator more behind the nodes at ``places``."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = list(copy.graph.node)
    for place in sorted(places, reverse=True):
        output = nodes[place].output[0]
        for one in nodes:
            one.input[:] = [f"{output}_new" if name == output else name for name in one.input]
        nodes.insert(place + 1, helper.make_node(operator, [output], [f"{output}_new"], name=f"new{place}"))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def compared(first: onnx.ModelProto, second: onnx.ModelProto, folder: Path) -> GraphDiff:
    """The graphs of two models as files, held against each other."""
    one, other = saved(first, folder / "first.onnx"), saved(second, folder / "second.onnx")
    return graph_diff(load_model(one), load_model(other))


def shown(first: onnx.ModelProto, second: onnx.ModelProto, folder: Path, *options: str) -> list[str]:
    """The arguments of a command that compares two models."""
    return ["diff", str(saved(first, folder / "a.onnx")), str(saved(second, folder / "b.onnx")), *options]


def test_a_model_and_itself_do_not_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shown(blocks(3), blocks(3), tmp_path, "--fail-on", "anything")) == 0
    out = capsys.readouterr().out
    assert "the two files have the same bytes" in out
    assert "the two do not differ" in out


@pytest.mark.parametrize("node", ["node_{}".format, lambda number: ""], ids=["renamed", "unnamed"])
def test_a_renamed_graph_is_equal_but_for_names(tmp_path: Path, node: Callable[[int], str]) -> None:
    diff = compared(blocks(12), renamed(blocks(12), node), tmp_path)
    assert diff.matched.by_structure == 37
    assert (diff.regions, diff.changed, diff.weights) == ((), (), ())
    assert diff.same_weights == 12
    assert diff.kinds == {"names"}
    assert [(one.first, one.second) for one in diff.renamed if one.what == "input"] == [("x", "image")]


def test_names_fail_only_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shown(blocks(3), renamed(blocks(3)), tmp_path)
    assert run([*arguments, "--fail-on", "operators", "--fail-on", "weights", "--fail-on", "norms"]) == 0
    assert "the graphs are equal but for names" in capsys.readouterr().out
    assert run([*arguments, "--fail-on", "names"]) == 1
    assert "the input x is called image" in capsys.readouterr().out


@pytest.mark.parametrize("is_renamed", [False, True])
@pytest.mark.parametrize("seed", [0, 100], ids=["same weights", "other weights"])
@pytest.mark.parametrize("operator", ["Sigmoid", "Relu"])
def test_an_inserted_node_is_one_difference(tmp_path: Path, is_renamed: bool, seed: int, operator: str) -> None:
    places = (0, 13, 30, 57)
    second = with_inserted(blocks(20, seed), *places, operator=operator)
    diff = compared(blocks(20), renamed(second) if is_renamed else second, tmp_path)
    assert [(region.first, [node.operator for node in region.second]) for region in diff.regions] == [((), [operator])] * 4
    assert diff.changed == ()
    assert len(diff.weights) == (20 if seed else 0)
    assert (diff.matched.only_first, diff.matched.only_second) == (0, 4)


def test_a_node_in_the_place_of_others_is_one_region(tmp_path: Path) -> None:
    text = "g (float[2, 8] x) => (float[2, 8] y) {{ a = MatMul(x, w) {} y = Softmax(c) }}"
    first = parse(text.format("b = Sigmoid(a) c = Mul(a, b)"), {"w": random(8, 8)})
    second = parse(text.format("c = Relu(a)"), {"w": random(8, 8)})
    (region,) = compared(first, second, tmp_path).regions
    assert [[node.operator for node in nodes] for nodes in (region.first, region.second)] == [["Sigmoid", "Mul"], ["Relu"]]
    assert region.behind[0].operator == "MatMul"
    assert region.before[0].operator == "Softmax"


def test_weights_differ_by_their_worst(tmp_path: Path) -> None:
    other = blocks(4)
    value = numpy_helper.to_array(other.graph.initializer[2]).copy()
    value[3, 4] += 0.25
    other.graph.initializer[2].CopyFrom(numpy_helper.from_array(value, "w2"))
    other.graph.initializer[3].CopyFrom(numpy_helper.from_array(value.astype(np.float64), "w3"))
    del other.graph.node[-4:]
    other.graph.node.append(helper.make_node("Identity", ["a2"], ["y"]))
    diff = compared(blocks(4), other, tmp_path)
    (weight,) = diff.weights
    largest = np.abs(numpy_helper.to_array(blocks(4).graph.initializer[2])).max()
    assert weight.worst == pytest.approx(0.25, rel=1e-6)
    assert weight.relative == pytest.approx(0.25 / largest, rel=1e-6)
    assert weight.node == "matmul2"


def test_another_type_is_told_beside_the_rounding(tmp_path: Path) -> None:
    half = blocks(1)
    half.graph.initializer[0].CopyFrom(numpy_helper.from_array(random(8, 8).astype(np.float16), "w0"))
    for value in (*half.graph.input, *half.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    diff = compared(blocks(1), half, tmp_path)
    (weight,) = diff.weights
    assert (weight.first_type, weight.second_type) == ("float[8, 8]", "float16[8, 8]")
    assert weight.relative is not None
    assert 0 < weight.relative < 2**-11
    assert diff.kinds == {"types", "weights"}


NORM = "g (float[2, 16, 4, 4] x) => (float[2, 16, 4, 4] y) {{ [bn] y = BatchNormalization{}(x, gamma, beta, mu, var) }}"


def test_a_normalization_with_another_epsilon_is_a_change_of_norms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [parse(NORM.format(text), batchnorm(16)) for text in ("", "<epsilon = 0.001>")]
    (change,) = compared(*models, tmp_path).changed
    assert (change.kind, change.what, change.was, change.now) == ("norms", "epsilon", "9.99999975e-06", "0.00100000005")
    assert run(shown(*models, tmp_path, "--fail-on", "norms")) == 1
    assert "BatchNormalization epsilon: 9.99999975e-06 → 0.00100000005" in capsys.readouterr().out


def test_a_default_that_is_written_out_is_no_difference(tmp_path: Path) -> None:
    models = [parse(NORM.format(text), batchnorm(16)) for text in ("", "<momentum = 0.9, epsilon = 0.00001>")]
    assert compared(*models, tmp_path).kinds == set()


def test_a_constant_node_and_an_initializer_are_the_same(tmp_path: Path) -> None:
    text = "g (float[2, 8] x) => (float[2, 8] y) {{ {} y = Mul(x, half) }}"
    first = parse(text.format("half = Constant<value_float = 0.5>()"))
    second = parse(text.format(""), {"half": np.array(0.5, np.float32)})
    assert compared(first, second, tmp_path).kinds == set()


def test_a_small_constant_is_shown_by_its_value(tmp_path: Path) -> None:
    text = "g (float[2, 8] x) => (float[a, b] y) { y = Reshape(x, sizes) }"
    models = [parse(text, {"sizes": np.array(sizes, np.int64)}) for sizes in ([4, 4], [-1, 2])]
    (change,) = compared(*models, tmp_path).changed
    assert (change.what, change.was, change.now) == ("shape", "[4, 4]", "[-1, 2]")


def test_another_input_is_told_with_both_of_them(tmp_path: Path) -> None:
    text = "g (float[2, 8] x) => (float[2, 8] y) {{ a = Relu(x) b = Tanh(a) c = Sigmoid(b) y = Add(c, {}) }}"
    (change,) = compared(parse(text.format("a")), parse(text.format("x")), tmp_path).changed
    assert (change.first.operator, change.what, change.was, change.now) == ("Add", "B", "Relu -> a", "input x")


BRANCHES = (
    "g (bool c, float[2, 8] x) => (float[2, 8] y) {{ r = Relu(x) [which] y = If (c) <"
    "then_branch = t () => (float[2, 8] z) {{ z = {}(r) }}, else_branch = e () => (float[2, 8] n) {{ n = Neg(r) }}> }}"
)


def test_the_branches_of_an_if_are_looked_into(tmp_path: Path) -> None:
    diff = compared(parse(BRANCHES.format("Tanh")), parse(BRANCHES.format("Exp")), tmp_path)
    (region,) = diff.regions
    assert region.graph == "then_branch of which"
    assert [region.first[0].operator, region.second[0].operator] == ["Tanh", "Exp"]
    assert compared(parse(BRANCHES.format("Tanh")), parse(BRANCHES.format("Tanh")), tmp_path).kinds == set()


def test_facts_about_the_file_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = blocks(2)
    other.opset_import[0].version = 18
    other.metadata_props.add(key="owner", value="nobody")
    other.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    assert run(shown(blocks(2), other, tmp_path, "--json")) == 0
    diff = Diff.load(json.loads(capsys.readouterr().out))
    found = {one.what: (one.kind, one.first, one.second) for one in diff.differences}
    assert found["opset"] == ("versions", "ai.onnx 17", "ai.onnx 18")
    assert found["metadata owner"] == ("metadata", "not there", "nobody")
    assert found["sizes"] == ("sizes", "x [2, 8], y [2, 8]", "x [N, 8], y [2, 8]")
    assert diff.kinds == {"versions", "metadata", "sizes", "model"}


def test_normalizations_in_pieces_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "g (float[2, 3, 16] x) => (float[2, 3, 16] y) { m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) q = Mul(d, d)"
        " v = ReduceMean<axes = [-1]>(q) e = Add(v, eps) s = Sqrt(e) y = Div(d, s) }"
    )
    first = parse(text, {"eps": np.array(1e-5, np.float32)})
    second = parse("g (float[2, 3, 16] x) => (float[2, 3, 16] y) { y = Relu(x) }")
    assert run(shown(first, second, tmp_path, "--json")) == 0
    diff = Diff.load(json.loads(capsys.readouterr().out))
    (norms,) = [one for one in diff.differences if one.kind == "norms"]
    assert (norms.first, norms.second) == ("1 LayerNorm", "none")


@pytest.mark.slow
def test_the_time_grows_as_the_graphs_do(tmp_path: Path) -> None:
    """The least time of the processor in three tries: four times as many nodes may take ten times as long, and not sixteen."""
    seconds = []
    for count in (400, 1600):
        first, second = blocks(count), renamed(with_inserted(blocks(count, seed=9000), 7, count, 2 * count))
        files = [load_model(saved(model, tmp_path / f"{name}.onnx")) for name, model in (("a", first), ("b", second))]
        tries = []
        for _ in range(3):
            before = time.process_time()
            diff = graph_diff(*files)
            tries.append(time.process_time() - before)
        seconds.append(min(tries))
        assert len(diff.regions) == 3
    assert seconds[1] < 10 * seconds[0], seconds


@pytest.mark.parametrize("fails", [True, False], ids=["the reader fails", "nobody notices"])
def test_a_file_that_changes_while_it_is_compared_is_named(tmp_path, monkeypatch, capsys, fails):
    """That was called a defect of trtnorm, or went unnoticed."""
    first, second = saved(blocks(1), tmp_path / "a.onnx"), saved(blocks(2), tmp_path / "b.onnx")

    def meanwhile(one: object, other: object) -> GraphDiff:
        second.unlink()
        if fails:
            raise FileNotFoundError(2, "No such file or directory", str(second))
        return GraphDiff()

    monkeypatch.setattr("trtnorm_cli.differences.comparing.graph_diff", meanwhile)
    assert run(["diff", str(first), str(second)]) == 3
    assert "b.onnx changed while it was worked on" in capsys.readouterr().err
