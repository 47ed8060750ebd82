"""A profile to start from fits the model that it is made for."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import parse, random
from tests.shapes.shape_models import raft
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.paste import starting_profile
from trtnorm_cli.profile.prove import Proof, prove
from trtnorm_cli.profile.start import start_for


def started(model: onnx.ModelProto) -> tuple[str, Proof]:
    inputs = inputs_of(model)
    text = starting_profile("m.onnx", inputs, start_for(model, inputs))
    profile = parse_profile(text)
    return text, prove(model, inputs, profile, fit(profile, inputs))


def test_multiples_are_stated_with_the_rule():
    text, proof = started(raft())
    line = "  H: {min: 224, opt: 224, max: 448, multiple_of: 8}  # H must be ≡ 0 (mod 8) and at least 16"
    assert line in text.splitlines()
    assert proof.notes == ()


def test_usual_sizes_are_moved_to_what_the_model_takes():
    body = "p = Conv<strides=[16, 16]>(x, w) f = Reshape(p, to) y = Add(f, position)"
    weights = {"w": random(8, 3, 16, 16), "position": random(1, 8, 16), "to": np.array([0, 8, -1])}
    _, proof = started(parse(f"g (float[N, 3, H, W] x) => (float[?, ?, ?] y) {{ {body} }}", weights))
    low, _, high = (proof.fitted.profiles[0].at(corner)["x"] for corner in ("min", "opt", "max"))
    assert low[2] // 16 * (low[3] // 16) == high[2] // 16 * (high[3] // 16) == 16


def test_dimensions_without_a_name():
    text, proof = started(parse("g (float[?, 4, ?] x) => (float[?, ?, ?] y) { y = Add(x, t) }", {"t": random(1, 4, 12)}))
    assert "# x[2] must be 1 or 12" in text
    assert proof.fitted.profiles[0].at("opt") == {"x": (8, 4, 12)}


def test_elements_that_decide_sizes():
    model = parse("g (float[N, 6] x, int64[2] shape) => (float[?, ?] y) { y = Reshape(x, shape) }")
    text, proof = started(model)
    assert "values:" in text
    values = proof.fitted.profiles[0].values["shape"]
    assert [int(np.prod(corner)) for corner in values] == [6, 48, 192]


def test_of_several_residues_multiples_are_chosen():
    """Half the size, a quarter, and the quarter brought back to the half: H mod 4 is 0 or 3."""
    body = "a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w) b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(a, w)"
    weights = {"w": random(3, 3, 3, 3), "s": np.array([1, 1, 2, 2], np.float32)}
    text = f"g (float[N, 3, H, 8] x) => (float[?, ?, ?, ?] y) {{ {body} u = Resize(b, , s) y = Concat<axis=1>(a, u) }}"
    start, proof = started(parse(text, weights))
    assert "  H: {min: 224, opt: 224, max: 448, multiple_of: 4}  # H mod 4 must be in {0, 3}" in start.splitlines()
    assert proof.notes == ()


def test_the_start_is_not_larger_than_what_is_allowed():
    model = parse("g (float[N, 512, H, W] x) => (float[?, ?, ?, ?] y) { y = Conv(x, w) }", {"w": random(8192, 512, 1, 1)})
    _, proof = started(model)
    assert proof.fitted.profiles[0].at("max")["x"] == (8, 512, 224, 224)
    assert proof.memory[0].total < 80 << 30


def test_what_is_known_stays():
    model = parse("g (float[N, 4] a, float[M, 4] b) => (float[N, 4] y) { y = Add(a, b) }")
    known = parse_profile("dims: {N: {min: 3, opt: 5, max: 9}}").dims
    assert start_for(model, inputs_of(model), known).ranges["M"].corners() in ((3, 5, 9), (1, 5, 9))


def test_types_that_may_be_treated_otherwise_are_comments():
    model = parse("g (int64[N, 4] ids, double[N, 4] x) => (double[N, 4] y) { d = Cast <to = 11> (ids) y = Add(x, d) }")
    text, _ = started(model)
    assert text.splitlines()[-3:-1] == [
        "# int64: keep        # ids; narrow computes in int32 inside where all values fit",
        "# io_double: float   # x will be float32 in the engine; keep makes that an error",
    ]
    uncommented = text.replace("# int64: keep", "int64: narrow").replace("# io_double: float", "io_double: keep")
    assert (parse_profile(uncommented).int64, parse_profile(uncommented).io_double) == ("narrow", "keep")
    assert "int64" not in started(parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"))[0]


def test_what_is_known_stays_where_another_size_can_move():
    model = parse("g (float[N, H] a, float[N, W] b) => (float[?, ?] y) { y = Concat<axis=0>(a, b) }")
    known = parse_profile("dims: {H: {min: 700, opt: 701, max: 702}}").dims
    ranges = start_for(model, inputs_of(model), known).ranges
    assert ranges["H"].corners() == ranges["W"].corners() == (700, 701, 702)


def test_a_multiple_that_the_name_states_stays_where_the_model_takes_no_multiples():
    """Two rows more make a multiple of four: H is even, and no multiple of four itself."""
    weights = {"p": np.array([0, 0, 1, 0, 0, 0, 1, 0])}
    model = parse(
        "g (float[1, 1, H, 4] x) => (float[?, ?, ?, ?] y) { q = Pad(x, p) y = SpaceToDepth<blocksize=4>(q) }", weights
    )
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "2*_H"
    found = start_for(model, inputs_of(model)).ranges["2*_H"]
    assert [size % 4 for size in found.corners()] == [2, 2, 2]
    assert found.multiple_of == 2


def test_a_number_that_decides_a_branch_begins_with_one():
    branch = "{name} = {key} () => (float[2] o{key}) {{ o{key} = {op}(x) }}"
    then = branch.format(name="then_branch", key="t", op="Relu")
    otherwise = branch.format(name="else_branch", key="e", op="Neg")
    model = parse(f"g (float[2] x, int64 n) => (float[2] y) {{ c = Cast<to=9>(n) y = If (c) <{then}, {otherwise}> }}")
    assert start_for(model, inputs_of(model)).values["n"].opt == (1,)


def test_an_input_of_unknown_rank_has_an_empty_shape():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert inputs_of(model)[0].shape == ()
