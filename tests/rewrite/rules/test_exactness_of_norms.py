"""For any shape, axes, groups and spelling the normalization written anew is the original one, to the digits of float64.

The models are stored in float32, as TensorRT takes no float64. Where constants are multiplied with each other, their product
is rounded to that, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.rewrite.norms.spellings import AFFINES, ROOTS, VARIANCES, layer_norm, model
from tests.rewrite.rules.norms import difference
from tests.shapes.runs import IS_RECENT_RUNTIME
from trtnorm_cli.rewrite.rules import (
    layer_norm_channels_first,
    normalization_in_rows,
    recompose_group_norm,
    recompose_instance_norm,
)

EXACT, ROUNDED_ONCE = 1e-12, 4 * 2.0**-24
RULES = tuple(
    module.RULE for module in (layer_norm_channels_first, recompose_instance_norm, recompose_group_norm, normalization_in_rows)
)
examples = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
slow_examples = settings(parent=examples, max_examples=1000)


@dataclass(frozen=True)
class Case:
    """A model, the rule that must take it, and the shape of x."""

    model: onnx.ModelProto
    rule: str
    shape: tuple[int, ...]
    bound: float = EXACT

    def check(self, rewrite) -> None:
        pins = {"x": self.shape}
        result = rewrite(self.model, RULES, pins, may_be_undone=not IS_RECENT_RUNTIME)
        # The LayerNormalization of ONNX Runtime before 1.24 loses digits where two channels are next to equal.
        assume(IS_RECENT_RUNTIME or not result.outcome.undone)
        assert result.outcome.failed == result.outcome.undone == []
        assert result.rules == [self.rule]
        assert difference(self.model, result.model, pins) < self.bound


def declared(draw, shape: tuple[int, ...], but: tuple[int, ...] = ()) -> tuple[int | str, ...]:
    """``shape`` with some axes known at run time only, none of ``but`` among them."""
    return tuple("NABCDE"[axis] if axis not in (1, *but) and draw(st.booleans()) else size for axis, size in enumerate(shape))


def plane(draw) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(2, 6), min_size=1, max_size=3)))


# One over n is a constant that is rounded in "sums".
EXACT_VARIANCES = [name for name in VARIANCES if name != "sums"]
PARAMETER = [lambda c, rank: (c, *[1] * (rank - 2)), lambda c, rank: (1, c, *[1] * (rank - 2)), lambda c, rank: (1,)]


@st.composite
def channels_first(draw) -> Case:
    shape = (2, draw(st.integers(2, 6)), *plane(draw))
    variance, root = draw(st.sampled_from(EXACT_VARIANCES)), draw(st.sampled_from(sorted(ROOTS)))
    affine, opset = draw(st.sampled_from(sorted(AFFINES))), draw(st.sampled_from([13, 17, 18, 21]))
    made = layer_norm(
        variance,
        root,
        affine,
        shape=declared(draw, shape),
        axes=(1,),
        parameter_shape=draw(st.sampled_from(PARAMETER))(shape[1], len(shape)),
        opset=opset,
        read_by_conv=True,
    )
    return Case(made, "layer-norm-channels-first", shape, ROUNDED_ONCE if affine == "twice" else EXACT)


@st.composite
def instances(draw) -> Case:
    shape = (2, draw(st.integers(2, 5)), *plane(draw))
    axes = tuple(range(2, len(shape)))
    variance, root = draw(st.sampled_from(EXACT_VARIANCES)), draw(st.sampled_from(sorted(ROOTS)))
    affine = draw(st.sampled_from(["Mul, Add", "operands swapped", "scale alone", "twice"]))
    counted = variance in ("ReduceSumSquare", "ReduceL2")
    made = layer_norm(
        variance,
        root,
        affine,
        shape=declared(draw, shape, but=axes if counted else ()),
        axes=axes,
        parameter_shape=(shape[1], *[1] * len(axes)),
        opset=draw(st.sampled_from([13, 17, 18])),
        read_by_conv=True,
    )
    return Case(made, "recompose-instance-norm", shape, ROUNDED_ONCE if affine == "twice" else EXACT)


@st.composite
def grouped(draw) -> Case:
    groups, per_group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shape = (2, groups * per_group, *plane(draw))
    rank, row = len(shape), per_group * math.prod(shape[2:])
    core = draw(
        st.sampled_from(
            [
                "z0 = InstanceNormalization <epsilon=1e-4> (r, ones, zeros)",
                "f = Reshape(x, four) z1 = LayerNormalization <axis=2, epsilon=1e-4> (f, long) z0 = Identity(z1)",
            ]
        )
    )
    head = "" if core.startswith("f") else "r = Reshape(x, rows)"
    target = draw(st.sampled_from(["z = Reshape(z0, back)", "t = Shape(x) z = Reshape(z0, t)"]))
    affine = draw(st.sampled_from(["a = Mul(z, g) y = Add(a, b)", "a = Mul(g, z) y = Add(b, a)", "y = Mul(z, g)"]))
    made = model(
        f"{head} {core} {target} {affine}",
        shape if draw(st.booleans()) else ("N", *shape[1:]),
        (),
        (shape[1], *[1] * (rank - 2)),
        read_by_conv=True,
        rows=np.array([0, groups, -1]),
        four=np.array([0, groups, per_group, -1]),
        back=np.array([0, *shape[1:]]),
        ones=np.ones(groups, np.float32),
        zeros=np.zeros(groups, np.float32),
        long=np.ones((per_group, row // per_group), np.float32),
    )
    instance = groups == shape[1] and not core.startswith("z0")
    return Case(made, "recompose-instance-norm" if instance else "recompose-group-norm", shape)


ALL = st.one_of(channels_first(), instances(), grouped())


@examples
@given(case=channels_first())
def test_channels_first(rewrite, case):
    case.check(rewrite)


def test_draws_that_rounding_moves_far_are_drawn_anew(rewrite):
    """Of two channels that are next to equal, the variance as E[x²] − E[x]² is rounding in float32."""
    made = layer_norm(
        "Clip", "1 ÷ Sqrt", "Mul, Add", shape=(2, 2, 3, 3), axes=(1,), parameter_shape=(1, 2, 1, 1), read_by_conv=True
    )
    Case(made, "layer-norm-channels-first", (2, 2, 3, 3)).check(rewrite)


@examples
@given(case=instances())
def test_instances(rewrite, case):
    case.check(rewrite)


@examples
@given(case=grouped())
def test_groups(rewrite, case):
    case.check(rewrite)


@pytest.mark.slow
@slow_examples
@given(case=ALL)
def test_many_more(rewrite, case):
    case.check(rewrite)
