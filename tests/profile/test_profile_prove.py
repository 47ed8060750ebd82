"""Optimization profiles against what the model demands: the conflict, the rule, the lines to paste, and --snap."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.models import parse, random
from tests.shapes.shape_models import raft
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import Proof, prove
from trtnorm_cli.profile.shape_inputs import shape_inputs
from trtnorm_cli.shapes.propagate import propagate

RANGES = """\
dims:
  N: 1
  H: {min: 135, opt: 540, max: 2156}
  W: {min: 135, opt: 960, max: 3840}
"""


def proved(model, text: str | None, snap: bool = False) -> Proof:
    inputs = inputs_of(model)
    profile = None if text is None else parse_profile(text, "cfg.yaml")
    return prove(model, inputs, profile, fit(profile, inputs), snap)


def refused(model, text: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        proved(model, text)
    assert caught.value.exit_code == 2
    return caught.value


def pasted(text: str, hint: str) -> str:
    """The profile with the lines of ``hint`` in place of those that it names."""
    lines = text.splitlines()
    found = re.findall(r"^  (\S.*?)  # \S+, line (\d+)$", hint, re.M)
    assert found
    for line, number in found:
        indent = re.match(r"[ -]*", lines[int(number) - 1]).group()
        lines[int(number) - 1] = indent + line
    return "\n".join(lines) + "\n"


def test_a_range_that_does_not_fit_raft():
    error = refused(raft(), RANGES)
    assert error.where == "cfg.yaml:3: dims.H.min"
    first, second = error.summary.splitlines()
    assert first == (
        "H = 135 does not fit the model at node join (Concat): dimension 2 of its inputs must be equal, but that of image is "
        "135 and that of u is 136; H must be ≡ 0 (mod 8) and at least 16: 135 → 136, 540 → 536 or 544, 2156 → 2152 or 2160"
    )
    assert second.startswith("cfg.yaml:4: dims.W.min: W = 135 does not fit")
    assert error.hint.splitlines() == [
        "let --snap choose the nearest sizes that fit, or write this:",
        "  H: {min: 136, opt: 544, max: 2152, multiple_of: 8}  # dims.H, line 3",
        "  W: {min: 136, opt: 960, max: 3840, multiple_of: 8}  # dims.W, line 4",
    ]


def test_the_lines_of_the_hint_fit():
    text = pasted(RANGES, refused(raft(), RANGES).hint)
    proof = proved(raft(), text)
    assert proof.notes == ()
    assert proof.fitted.profiles[0].at("max") == {"image": (1, 3, 2152, 3840)}


def test_snapping_takes_the_same_sizes_and_says_so():
    proof = proved(raft(), RANGES, snap=True)
    assert proof.fitted == proved(raft(), pasted(RANGES, refused(raft(), RANGES).hint)).fitted
    assert proof.notes[0] == "snapped: H: {min: 136, opt: 544, max: 2152, multiple_of: 8}  # dims.H, line 3"
    assert proof.profile.dims["H"].corners() == (136, 544, 2152)


FORMS = {
    "shapes of an input": (
        """\
optimization_profiles:
  - inputs:
      image: {min: [1, 3, 135, 160], opt: [1, 3, 135, 160], max: [2, 3, 300, 160]}
""",
        [(1, 3, 136, 160), (1, 3, 136, 160), (2, 3, 296, 160)],
    ),
    "a second profile": (
        """\
optimization_profiles:
  - name: small
    dims: {N: 1, H: 64, W: 64}
  - name: large
    dims:
      H: {min: 64, opt: 100, max: 200}
dims:
  N: 1
  W: 128
""",
        [(1, 3, 64, 128), (1, 3, 104, 128), (1, 3, 200, 128)],
    ),
    "one size": ("dims:\n  N: 1\n  H: 133\n  W: 160\n", [(1, 3, 136, 160)] * 3),
    "a range without any legal size": (
        "dims:\n  N: 1\n  H: {min: 129, opt: 130, max: 135}\n  W: 160\n", [(1, 3, 128, 160)] * 3,
    ),
    "its own multiple is kept": (
        "dims:\n  N: 1\n  H: {min: 20, opt: 100, max: 300, multiple_of: 20}\n  W: 160\n",
        [(1, 3, 40, 160), (1, 3, 120, 160), (1, 3, 280, 160)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_profile_is_mended(name):
    text, expected = FORMS[name]
    error = refused(raft(), text)
    for proof in (proved(raft(), text, snap=True), proved(raft(), pasted(text, error.hint))):
        assert [proof.fitted.profiles[-1].at(corner)["image"] for corner in ("min", "opt", "max")] == expected


def test_the_profile_is_named_where_there_are_several():
    error = refused(raft(), FORMS["a second profile"][0])
    assert error.summary.startswith("in optimization profile 'large': H = 100 does not fit")
    assert error.where == "cfg.yaml:6: optimization_profiles[1].dims.H.opt"


def test_dimensions_without_a_name():
    model = parse("g (float[?, 4, ?] x) => (float[?, ?, ?] y) { y = Add(x, t) }", {"t": random(1, 4, 12)})
    text = "optimization_profiles:\n  - inputs:\n      x: {min: 1x4x10, opt: 2x4x12, max: 4x4x20}\n"
    error = refused(model, text)
    assert "x[2] = 10 does not fit the model at node -> y (Add)" in error.summary
    assert "x[2] must be 1 or 12" in error.summary
    assert proved(model, text, snap=True).fitted.profiles[0].at("max") == {"x": (4, 4, 12)}
    assert proved(model, pasted(text, error.hint)).fitted.profiles[0].at("min") == {"x": (1, 4, 12)}


def test_symbols_that_must_be_equal():
    model = parse("g (float[N, H, W] x) => (float[?, ?, ?] y) { t = Transpose<perm=[0, 2, 1]>(x) y = Concat<axis=0>(x, t) }")
    text = "dims:\n  N: 1\n  H: {min: 8, opt: 16, max: 32}\n  W: {min: 8, opt: 20, max: 64}\n"
    error = refused(model, text)
    assert "H and W must satisfy H == W" in error.summary
    proof = proved(model, pasted(text, error.hint))
    assert all(len(set(proof.fitted.profiles[0].at(corner)["x"][1:])) == 1 for corner in ("min", "opt", "max"))
    assert proof.notes == ("profile default: between min and max, H and W must satisfy H == W",)


def test_an_image_of_one_size_for_a_vision_transformer():
    body = "p = Conv<strides=[16, 16]>(x, w) f = Reshape(p, to) y = Add(f, position)"
    weights = {"w": random(8, 3, 16, 16), "position": random(1, 8, 196), "to": np.array([0, 8, -1])}
    model = parse(f"g (float[N, 3, H, W] x) => (float[?, ?, ?] y) {{ {body} }}", weights)
    text = "dims:\n  N: 1\n  H: {min: 128, opt: 224, max: 300}\n  W: {min: 128, opt: 224, max: 300}\n"
    proof = proved(model, text, snap=True)
    shapes = [proof.fitted.profiles[0].at(corner)["x"] for corner in ("min", "opt", "max")]
    assert shapes == [(1, 3, 224, 224), (1, 3, 224, 224), (1, 3, 239, 239)]


def test_sizes_in_between_are_noted_with_the_multiple_to_write():
    text = "dims:\n  N: 1\n  H: {min: 64, opt: 64, max: 128}\n  W: 64\n"
    (note,) = proved(raft(), text).notes
    assert note == "profile default: between 64 and 128, H must be ≡ 0 (mod 8) and at least 16; multiple_of: 8 keeps to them"
    assert proved(raft(), text.replace("max: 128", "max: 128, multiple_of: 8")).notes == ()


def test_what_nothing_demands_is_not_refused():
    model = parse("g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }")
    proof = proved(model, "dims: {N: {min: 0, opt: 1, max: 7}, H: {min: 1, opt: 3, max: 9}, W: 1}")
    assert (proof.notes, proof.constraints) == ((), ())


def test_a_model_that_no_size_fits():
    model = parse("g (float[N, H] x) => (float[N, ?] y) { a = Concat<axis=1>(x, x) y = Add(a, t) }", {"t": random(1, 7)})
    error = refused(model, "dims: {N: 1, H: {min: 2, opt: 3, max: 4}}")
    assert re.search(r"; no value of H up to \d+ satisfies 2\*H == 7$", error.summary), error.summary
    assert error.hint == "no sizes close to these fit; ask for sizes that the model was made for"
    with pytest.raises(ProfileError):
        proved(model, "dims: {N: 1, H: {min: 2, opt: 3, max: 4}}", snap=True)


SHAPE_INPUT = "g (float[N, 6] x, int64[2] shape) => (float[?, ?] y) { y = Reshape(x, shape) }"


@pytest.mark.parametrize("name", ["shape", "a.values[0]", "s.values"])
def test_inputs_whose_elements_decide_sizes(name):
    """Also beside a dimension that is called like an element of another one, which decides none."""
    model = parse(SHAPE_INPUT, {"c": np.arange(700.0, dtype=np.float32)})
    model.graph.input[1].name = model.graph.node[0].input[1] = name
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "x.values[0]"
    assert shape_inputs(propagate(model)) == {name: 2}


def test_elements_that_decide_sizes_are_asked_for():
    model = parse(SHAPE_INPUT)
    text = "dims: {N: {min: 1, opt: 2, max: 4}}\n"
    error = refused(model, text)
    assert (
        "the elements of the input shape decide sizes in the model, and optimization profile 'default' gives none"
        in error.summary
    )
    values = error.hint.split("numbers:\n")[1]
    proof = proved(model, text + values)
    assert proof.fitted.profiles[0].values["shape"] == ((6, 1), (12, 1), (24, 1))


def test_elements_that_do_not_fit():
    text = "dims: {N: {min: 1, opt: 2, max: 4}}\nvalues:\n  shape: {min: [1, 6], opt: [2, 6], max: [4, 7]}\n"
    error = refused(parse(SHAPE_INPUT), text)
    assert "must satisfy 6*N == shape.values[0]*shape.values[1]" in error.summary
    assert proved(parse(SHAPE_INPUT), text, snap=True).fitted.profiles[0].values["shape"].max == (4, 6)


@pytest.mark.parametrize(("values", "message"), [
    ("{shape: [1, 2, 3]}", "3 values where the model's input has 2"),
    ("{x: [1]}", "only an int32, int64 or bool scalar or vector"),
    ("{shapes: [1, 2]}", "did you mean 'shape'?"), ("{shape: {min: [2, 2], opt: [1, 2], max: [4, 2]}}", "1 is below min 2"),
])  # fmt: skip
def test_elements_that_no_input_takes(values, message):
    assert message in refused(parse(SHAPE_INPUT), f"dims: {{N: 2}}\nvalues: {values}\n").summary


def test_elements_that_are_no_numbers():
    with pytest.raises(ProfileError, match="expected an integer"):
        parse_profile("dims: {N: 2}\nvalues: {shape: [a, 2]}\n")


def test_the_memory_at_max():
    body = "a = Conv<pads=[1, 1, 1, 1]>(x, w) b = Relu(a) y = Add(b, x)"
    model = parse(f"g (float[N, 4, H, W] x) => (float[N, 4, H, W] y) {{ {body} }}", {"w": random(4, 4, 3, 3)})
    (estimate,) = proved(model, "dims: {N: 1, H: {min: 8, opt: 8, max: 100}, W: 50}").memory
    one = 4 * 100 * 50 * 4
    assert (estimate.weights, estimate.activations, estimate.unknown) == (4 * 4 * 9 * 4, 3 * one, 0)
    assert estimate.largest_elements == 4 * 100 * 50


def test_an_absurd_maximum_is_refused_with_the_number():
    model = parse("g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }")
    text = "dims:\n  N: 1\n  H: {min: 1, opt: 8, max: 100000}\n  W: {min: 1, opt: 8, max: 100000}\n"
    error = refused(model, text)
    assert "needs about 223.5 GiB" in error.summary
    assert "allowed are 80.0 GiB" in error.summary
    limit = re.search(r"max_memory: \d+GiB", error.hint).group()
    assert proved(model, text + limit + "\n").memory[0].total == 2 * 3 * 10**10 * 4


def test_a_static_model_needs_no_proof():
    model = parse("g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }")
    assert proved(model, None).constraints == ()


@pytest.mark.parametrize(
    ("pads", "said"), [((0, 0), "H must be ≡ 0 (mod 2)"), ((0, 1), "H must be ≡ 1 (mod 2)")], ids=["even", "odd"]
)
def test_a_multiple_is_advised_only_where_the_legal_sizes_are_multiples(pads, said):
    graph = """g (float[1, 2, H] x) => (float[1, 2, H] y) {
        h = MaxPool<kernel_shape = [2], strides = [2]>(x) u = Resize<mode = "nearest">(h, , s) p = Pad(u, pads) y = Add(x, p)
    }"""
    before, after = pads
    weights = {"s": np.array([1, 1, 2], np.float32), "pads": np.array([0, 0, before, 0, 0, after], np.int64)}
    low = 4 + after
    (note,) = proved(parse(graph, weights), f"dims: {{H: {{min: {low}, opt: {low + 2}, max: {low + 4}}}}}").notes
    assert said in note
    assert ("multiple_of: 2 keeps to them" in note) == (after == 0)


def test_only_the_profile_that_does_not_fit_is_mended():
    text = """\
optimization_profiles:
  - name: small
    dims: {H: {min: 64, opt: 72, max: 80}}
  - name: large
    dims: {H: {min: 64, opt: 100, max: 200}}
dims:
  N: 1
  W: 128
"""
    snapped = [note for note in proved(raft(), text, snap=True).notes if note.startswith("snapped")]
    assert snapped == ["snapped: H: {min: 64, opt: 104, max: 200, multiple_of: 8}  # optimization_profiles[1].dims.H, line 5"]


@pytest.mark.parametrize(
    ("body", "rule"),
    [("y = Add(x, t)", "H must be 1 or 9"), ("a = Slice(x, i, n, k) y = Add(a, t)", "H must be at least 9 (or 1)")],
)
def test_a_least_size_is_no_reason_to_advise_multiples(body, rule):
    """One is broadcast, and of nine or more nine are taken."""
    weights = {"i": np.array([0]), "n": np.array([9]), "k": np.array([2])} if "Slice" in body else {}
    model = parse(f"g (float[1, 2, H] x) => (float[?, ?, ?] y) {{ {body} }}", {"t": random(1, 2, 9), **weights})
    (note,) = proved(model, "dims: {H: {min: 1, opt: 1, max: 9}}").notes
    assert rule in note
    assert "multiple_of" not in note


def test_rare_sizes_in_a_wide_range_are_noted():
    model = parse("g (float[1, H] x) => (float[?, ?] y) { y = Reshape(x, t) }", {"t": np.array([-1, 65536])})
    text = "dims: {H: {min: 65536, opt: 65536, max: 655360000}}\nmax_memory: 1TiB"
    (note,) = proved(model, text).notes
    assert "H must be ≡ 0 (mod 65536)" in note or "H must satisfy H % 65536 == 0" in note


def test_shapes_of_inputs_fit_where_nothing_is_broken():
    model = parse("g (float[?, 4, ?] x) => (float[?, ?, ?] y) { y = Add(x, t) }", {"t": random(1, 4, 12)})
    proof = proved(model, "optimization_profiles:\n  - inputs:\n      x: 1x4x12\n")
    assert [proof.fits({"x": (2, 4, size)}) for size in (1, 11, 12)] == [True, False, True]


def test_a_bound_beyond_what_is_tried_is_said_as_it_is():
    body = "s = Shape(x) h = Gather(s, one) r = Range(zero, h, one) y = Gather(table, r)"
    weights = {"zero": np.array(0), "one": np.array(1), "table": np.zeros((200000, 1), np.float32)}
    model = parse(f"g (float[1, H] x) => (float[?, ?] y) {{ {body} }}", weights)
    assert "H must satisfy " in refused(model, "dims: {H: {min: 1, opt: 9, max: 300000}}").summary
