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
