"""Which GroupNorms TensorRT's own normalizes in two kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.rewrite.usual_group_norms import GroupNorm, group_norms

NORMALIZED = "r = Reshape(x, groups) i = InstanceNormalization(r, ones, zeros) u = Reshape(i, back)"


def norms(
    nodes: str,
    shape: Any = ("N", 64, 8, 8),
    groups: int = 16,
    dtype: int = onnx.TensorProto.FLOAT,
    types: Mapping[str, Any] | None = None,
) -> list[GroupNorm]:
    """The GroupNorms of a model with ``nodes`` on the data ``c`` or ``x``, whose Reshapes give ``types``: rows, if not said."""
    weights = {"groups": np.array((0, groups, -1)), "back": np.array((-1, 64, 8, 8))}
    weights |= {"ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32)}
    weights |= {"scale": random(64, 1, 1), "shift": random(64, 1, 1), "vector": random(64)}
    weights |= {"w": random(64, 64, 1, 1), "each": random(64, 1, 1, 1), "sizes": np.array((1, 1, 2, 2), np.float32)}
    model = parse(f"g (float[N,64,8,8] x) => (float[N,64,8,8] y) {{ {nodes} }}", weights, opset=21)
    model.graph.ClearField("input")
    model.graph.input.append(onnx.helper.make_tensor_value_info("x", dtype, shape))
    given = {"r": (shape[0], groups, None)} if types is None and shape else types or {}
    given |= {"c": shape} if types is not None else {}
    model.graph.value_info.extend(onnx.helper.make_tensor_value_info(name, dtype, one) for name, one in given.items())
    return list(group_norms(model))


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        (f"{NORMALIZED} m = Mul(u, scale) y = Add(m, shift)", [("i", "y")]),
        (f"{NORMALIZED} m = Mul(scale, u) y = Add(shift, m)", [("i", "y")]),
        (f"{NORMALIZED} y = Add(u, shift)", [("i", "y")]),
        (f"{NORMALIZED} y = Relu(u)", [("i", "u")]),
        (f"{NORMALIZED} m = Mul(u, scale) y = Add(m, x)", [("i", "m")]),
        (f"{NORMALIZED} m = Mul(u, x) y = Add(m, shift)", [("i", "u")]),
        (f"{NORMALIZED} m = Mul(u, scale) s = Add(m, shift) y = Add(s, m)", [("i", "m")]),
        ("y = GroupNormalization <num_groups=16> (x, vector, vector)", [("y", "y")]),
        ("y = GroupNormalization <num_groups=1> (x, vector, vector)", []),
        ("y = InstanceNormalization(x, vector, vector)", []),
        ("r = Relu(x) y = InstanceNormalization(r, vector, vector)", []),
        ("r = Reshape(x, groups) i = InstanceNormalization(r, r, zeros) y = Reshape(i, back)", []),
    ],
    ids=[
        *("as PyTorch writes it", "operands the other way", "shifted alone", "neither", "added to other data"),
        *("scaled by other data", "read twice", "a node", "one group", "instances", "instances of an activation"),
        "a scale that is computed",
    ],
)
def test_it_is_known_by_what_normalizes_and_by_its_result(nodes: str, names: list[tuple[str, str]]) -> None:
    assert [one.names for one in norms(nodes)] == names


def test_groups_of_all_samples_together_are_none():
    """As some write it, with as many groups as there are in all samples."""
    data = "c = Relu(x) r = Reshape(c, groups) i = InstanceNormalization(r, ones, zeros) y = Reshape(i, back)"
    assert [one.groups for one in norms(data, (2, 64, 8, 8), types={"r": (2, 16, 256)})] == [16]
    assert norms(data, (2, 64, 8, 8), types={"r": (1, 16, 512)}) == []
    assert [one.groups for one in norms(data, ("N", 64, 8, 8), types={"r": (None, 16, None)})] == [16]
    assert [one.groups for one in norms(data, (2, 64, 8, 8), types={})] == [16]


NODE = "y = GroupNormalization <num_groups=%d> (x, vector, vector)"


@pytest.mark.parametrize(
    ("shape", "groups", "usual"),
    [
        (("N", 64, 8, 8), 16, True),
        ((2, 96, 4, 4, 4), 16, True),
        ((2, 64, 8), 32, True),
        ((2, 160, 8, 8), 32, True),
        ((2, 96, 8, 8), 32, False),
        ((2, 64, 8, 8), 64, False),
        ((2, 32, 8, 8), 8, False),
        ((2, 80, 8, 8), 16, False),
        ((2, 64, 8, 8), 24, False),
        ((2, 64, "H", 8), 16, False),
        ((2, "C", 8, 8), 16, False),
        ((2, 64), 16, False),
        (None, 16, False),
    ],
    ids=[
        *("four of each", "of three dimensions", "of one", "five of each", "three of each", "one of each", "few channels"),
        *("no multiple of 32", "groups that do not divide", "an open height", "open channels", "no positions", "no shape"),
    ],
)
def test_it_is_usual_in_numbers_of_channels_that_were_measured(shape: Any, groups: int, usual: bool) -> None:
    (norm,) = norms(NODE % groups, shape)
    assert norm.has_usual_channels is usual


def test_half_precision_was_not_measured() -> None:
    (norm,) = norms(NODE % 16, dtype=onnx.TensorProto.FLOAT16)
    assert not norm.has_usual_channels


@pytest.mark.parametrize(("shape", "samples", "row"), [(("N", 64, 8, 8), "N", 256), ((2, 64, 8, "W"), 2, 0), (None, None, 0)])
def test_samples_and_values_of_a_group_are_known_or_open(shape: Any, samples: Any, row: int) -> None:
    (norm,) = norms(NODE % 16, shape)
    assert (norm.samples, norm.row) == (samples, row)


GROUPS = "GroupNormalization <num_groups=16>"
CONVOLVED = "c = Conv(x, w) n = GroupNormalization <num_groups=16> (c, vector, vector)"
SILU = "s = Sigmoid(n) a = Mul(n, s)"


@pytest.mark.parametrize(
    ("nodes", "is_between"),
    [
        (f"{CONVOLVED} y = Conv(n, w)", True),
        (f"{CONVOLVED} r = Relu(n) y = Conv(r, w) z = Conv(r, w)", True),
        (f"{CONVOLVED} {SILU} y = Conv(a, w)", True),
        (f"{CONVOLVED} r = Relu(n) y = MaxPool <kernel_shape=[2, 2]> (r)", True),
        (f"{CONVOLVED} r = Relu(n) p = AveragePool <kernel_shape=[2, 2]> (r) y = Conv(r, w)", True),
        (f"c = Conv(x, w) m = MaxPool <kernel_shape=[2, 2]> (c) n = {GROUPS} (m, vector, vector) y = Conv(n, w)", True),
        (f"c = Conv(x, w) d = Add(c, x) n = {GROUPS} (d, vector, vector) y = Conv(n, w)", True),
        (f"n = {GROUPS} (x, vector, vector) y = Conv(n, w)", False),
        (f"c = Conv <group=64> (x, each) n = {GROUPS} (c, vector, vector) y = Conv(n, w)", False),
        (f"{CONVOLVED} r = Relu(n) y = Conv <group=64> (r, each)", False),
        (f"{CONVOLVED} r = HardSwish(n) y = Conv(r, w)", False),
        (f"{CONVOLVED} r = Relu(n) y = Resize(r, , sizes)", False),
        (f"{CONVOLVED} y = Conv(n, w) z = Relu(n)", False),
        (f"{CONVOLVED} s = Sigmoid(n) a = Mul(n, s) b = Add(a, s) y = Conv(a, w)", False),
        (f"{CONVOLVED} s = Sigmoid(x) a = Mul(n, s) t = Sigmoid(n) y = Conv(a, w)", False),
        (f"{CONVOLVED} r = Relu(n) y = Add(r, x)", False),
        (f"{CONVOLVED} y = Add(n, x)", False),
        ("y = GroupNormalization <num_groups=16> (x, vector, vector)", False),
    ],
    ids=[
        *("as it is", "activated", "SiLU", "pooled behind", "averaged, too", "pooled before", "added before"),
        *("behind no convolution", "behind a depthwise one", "in front of a depthwise one", "another activation", "resized"),
        *("read otherwise, too", "its gate is read, too", "another gate", "activated and added", "added", "a result"),
    ],
)
def test_convolutions_give_the_data_and_read_the_result(nodes: str, is_between: bool) -> None:
    (norm,) = norms(nodes)
    assert norm.is_between_convolutions is is_between


@pytest.mark.parametrize(
    ("nodes", "is_added"),
    [
        (f"{CONVOLVED} y = Add(x, n)", True),
        (f"{CONVOLVED} y = Add(x, n) z = Relu(n)", False),
        (f"{CONVOLVED} y = Relu(n)", False),
    ],
)
def test_it_is_added_where_an_addition_alone_reads_the_result(nodes: str, is_added: bool) -> None:
    (norm,) = norms(nodes)
    assert norm.is_added is is_added


def test_a_result_of_the_model_is_not_read_by_convolutions_alone() -> None:
    (norm,) = norms(f"{CONVOLVED.replace('n =', 'y =')} z = Conv(y, w)")
    assert not norm.is_between_convolutions
