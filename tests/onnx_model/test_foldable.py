"""The library that folds is asked only where something can be folded, and infers only what is not known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random
from tests.onnx_model.running import same_values
from trtnorm_cli.onnx_model import fold, fold_library, infer
from trtnorm_cli.onnx_model.clean import clean

CHAIN = """g (float[N, 3, 16, 16] x) => (float[N, 12] z) {
  a = Conv<pads = [1, 1, 1, 1]>(x, w)
  b = BatchNormalization(a, gamma, beta, mu, var)
  c = Relu(b)
  d = GlobalAveragePool(c)
  z = Reshape(d, shape)
}"""
WEIGHTS = {"w": random(12, 3, 3, 3), **batchnorm(12), "shape": np.array([-1, 12])}
ARITHMETIC = """g (float[N, 3, 16, 16] x) => (float[N, K] z) {
  s = Shape(x)
  n = Gather(s, zero)
  one = Unsqueeze(n, axis)
  rest = Constant<value_ints = [-1]>()
  to = Concat<axis = 0>(one, rest)
  z = Reshape(x, to)
}"""
INDICES = {"zero": np.array(0), "axis": np.array([0])}


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The nodes that the library infers, and "library" for each of its passes."""
    calls: list[str] = []
    run, inferred = fold_library.run_library, onnx.shape_inference.infer_node_outputs

    def counted_run(*arguments):
        calls.append("library")
        return run(*arguments)

    def counted(schema, node, *arguments, **options):
        calls.append(node.op_type)
        return inferred(schema, node, *arguments, **options)

    monkeypatch.setattr(fold_library, "run_library", counted_run)
    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", counted)
    return calls


def passes_over(graph: str, weights: dict[str, np.ndarray], monkeypatch) -> int:
    """How often the shapes of the whole graph are inferred while it is cleaned."""
    calls: list[bool] = []
    whole = infer._infer
    monkeypatch.setattr(infer, "_infer", lambda model, data_prop: (calls.append(data_prop), whole(model, data_prop))[1])
    clean(parse(graph, weights))
    return len(calls)


def test_a_model_with_nothing_to_fold_is_not_given_to_the_library(asked):
    clean(parse(CHAIN, WEIGHTS))
    assert asked == []


def test_identities_are_no_work_for_the_library(asked):
    """Exporters write one for each use of a weight that is used twice."""
    graph = CHAIN.replace("a = Conv", "v = Identity(w) a = Conv").replace("(x, w)", "(x, v)")
    model = clean(parse(graph.replace("c = Relu(b)", "i = Identity(b) c = Relu(i)"), WEIGHTS))
    assert asked == []
    assert "Identity" not in [node.op_type for node in model.model.graph.node]


def test_nor_is_the_library_imported():
    code = (
        "import sys\nfrom tests.onnx_model.test_foldable import CHAIN, WEIGHTS\nfrom tests.models import parse\n"
        "for name in [name for name in sys.modules if name.startswith('onnxscript')]:\n    del sys.modules[name]\n"
        "from trtnorm_cli.onnx_model.clean import clean\nclean(parse(CHAIN, WEIGHTS))\nsys.exit('onnxscript' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_and_is_inferred_once_for_folding_and_twice_for_the_result(monkeypatch):
    assert passes_over(CHAIN, WEIGHTS, monkeypatch) <= 3


def test_constants_are_seen_behind_identities(asked):
    graph = "g (float[3] x) => (float[3] z) { i = Identity(k) c = Softsign(i) z = Add(x, c) }"
    model = clean(parse(graph, {"k": random(3)})).model
    assert "library" in asked
    assert len(model.graph.node) == 1


def test_what_onnx_runtime_evaluates_is_seen_behind_identities(asked):
    """The library leaves a Resize alone, so there is nothing for it to do."""
    graph = 'g (float[1, 1, 4] x) => (float[1, 1, 4] z) { i = Identity(k) c = Resize<mode = "nearest">(i, , s) z = Add(x, c) }'
    model = clean(parse(graph, {"k": random(1, 1, 2), "s": np.array([1, 1, 2], np.float32)})).model
    assert asked == []
    assert [node.op_type for node in model.graph.node] == ["Add"]


def test_nor_is_what_has_several_outputs_any_work_for_the_library(asked):
    graph = "g (float[3] x) => (float[3] z) { a, b = Split<axis = 0>(k, sizes) n = Neg(b) c = Add(a, n) z = Add(x, c) }"
    model = clean(parse(graph, {"k": random(6), "sizes": np.array([3, 3])})).model
    assert "library" not in asked
    assert [node.op_type for node in model.graph.node] == ["Add"]


@pytest.mark.parametrize(
    "line", ["c = Softsign(k) z = Add(x, c)", "z = Dropout(x)", "c = CastLike(x, k) z = Relu(c)", "s = Shape(x) z = Abs(s)"]
)
def test_what_can_be_folded_is(asked, line):
    kind = "int64[1]" if "Shape" in line else "float[3]"
    weights = {"k": random(3), "same": np.array([3])}
    model = clean(parse(f"g (float[N, 3] x) => ({kind} z) {{ {line} }}", weights, opset=18)).model
    assert "library" in asked
    assert [node.op_type for node in model.graph.node] in (["Add"], ["Mul"], ["Identity"], ["Relu"], ["Shape"])


@pytest.mark.parametrize(
    "line",
    ["c = Neg(k) z = Add(x, c)", "z = Cast<to = 1>(x)", "i = Identity(k) c = Neg(i) z = Add(x, c)", "z = Reshape(x, same)",
     "i = Identity(same) j = Identity(i) z = Reshape(x, j)", "z = Expand(x, same)", "z = Concat<axis = 0>(x)",
     "z = Concat<axis = -1>(none, x, none)", "c = Shape(x) f = Cast<to = 1>(c) z = Add(x, f)",
     "c = Size(x) f = Cast<to = 1>(c) z = Add(x, f)", "b = ConstantOfShape(same) z = Mul(x, b)"],
)  # fmt: skip
def test_what_is_known_is_folded_without_the_library(asked, line):
    weights = {"k": random(3), "same": np.array([3]), "none": np.zeros(0, np.float32)}
    model = same_values(parse(f"g (float[3] x) => (float[3] z) {{ {line} }}", weights, opset=18)).model
    assert "library" not in asked
    assert [node.op_type for node in model.graph.node] in (["Add"], ["Mul"], ["Identity"])


def test_operands_without_elements_go():
    weights = {"none": np.zeros((2, 0), np.float32)}
    graph = "g (float[N, 2, 3] x) => (float[N, 2, 6] z) { s = Relu(x) e = Expand(none, to) z = Concat<axis = 2>(s, e, x, e) }"
    model = same_values(parse(graph, {**weights, "to": np.array([1, 2, 0])})).model
    assert [[*node.input] for node in model.graph.node if node.op_type == "Concat"] == [["s", "x"]]


def test_an_operand_that_is_empty_along_another_axis_stays():
    """It says how long the axis is."""
    graph = "g (float[N, 0] x) => (float[M, 0] z) { z = Concat<axis = 0>(x, empty) }"
    model = same_values(parse(graph, {"empty": np.zeros((1, 0), np.float32)})).model
    assert [[*node.input] for node in model.graph.node] == [["x", "empty"]]


def padded(blocks: int) -> str:
    """Each block pads its data to a multiple of a size that it finds in the shape of what the one before has padded."""
    lines = "".join(
        f"""s{i} = Shape(x{i}) h{i} = Gather(s{i}, axis) m{i} = Mod(h{i}, size) r{i} = Sub(size, m{i}) q{i} = Mod(r{i}, size)
        p{i} = Concat<axis = 0>(zero, q{i}, zero, zero, zero, zero) x{i + 1} = Pad(x{i}, p{i})    """
        for i in range(blocks)
    )
    return f"g (float[N, 5, 8] x0) => (float[N, H, 8] z) {{ {lines} z = Relu(x{blocks}) }}"


PADDED = {"axis": np.array([1]), "size": np.array([7]), "zero": np.array([0])}


def test_sizes_that_follow_from_each_other_are_found_in_one_pass(monkeypatch):
    """Windowed attention does this in each block. One inference of the whole graph for each would make it quadratic."""
    passes = {blocks: passes_over(padded(blocks), PADDED, monkeypatch) for blocks in (1, 12)}
    assert passes[12] == passes[1]


def test_and_they_are_the_right_ones():
    cleaned = same_values(parse(padded(4), PADDED)).model
    assert "Mod" not in operators(cleaned)
    pads = [node.input[1] for node in cleaned.graph.node if node.op_type == "Pad"]
    values = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in cleaned.graph.initializer}
    assert [values[name][1] for name in pads] == [2, 0, 0, 0]


def test_only_what_changed_is_inferred_node_by_node(asked):
    """A long tail behind the arithmetic is known from the inference of the whole graph."""
    tail = "".join(f"t{i} = Relu({'z0' if i == 0 else f't{i - 1}'}) " for i in range(50))
    graph = ARITHMETIC.replace("z = Reshape", "z0 = Reshape").rstrip("}") + tail + "z = Relu(t49) }"
    model = clean(parse(graph, INDICES)).model
    assert asked.count("Relu") <= 51
    assert len(model.graph.node) == 52 + 4
    long = len(asked)
    asked.clear()
    clean(parse(ARITHMETIC, INDICES))
    assert long - len(asked) <= 60


def test_a_wrong_type_in_the_file_folds_nothing_away():
    """The file says that y is float already: to believe it would take the Cast away."""
    model = parse("g (double[3] x) => (float[3] z) { y = Neg(x) z = Cast<to = 1>(y) }")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3]))
    assert [node.op_type for node in clean(model).model.graph.node] == ["Neg", "Cast"]


def test_a_type_that_inference_of_the_whole_graph_leaves_open_is_learnt():
    graph = """g (float[2, 8, 6] x) => (float[2, 8, 6] y) {
      a = Relu(x)
      n = GroupNormalization<num_groups = 4>(a, s, b)
      y = Relu(n)
    }"""
    cleaned = clean(parse(graph, {"s": random(8), "b": random(8)}, opset=21)).model
    assert {value.name: value.type.tensor_type.elem_type for value in cleaned.graph.value_info}["n"] == onnx.TensorProto.FLOAT


def test_folding_that_does_not_end_is_stopped_with_a_note(monkeypatch):
    monkeypatch.setattr(fold, "_ROUNDS", 1)
    cleaned = same_values(parse(padded(2), PADDED))
    assert "folding was stopped after 1 rounds; there may be more to fold" in cleaned.notes
