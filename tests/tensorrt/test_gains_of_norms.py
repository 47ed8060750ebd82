"""When normalizations in other operators take no longer than TensorRT's own InstanceNormalization."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.tensorrt.told import MB, cost, kernel, moving, tells
from trtnorm_cli.records.engine_parts import UnreadKernel

NORMALIZED = "c = Conv(x, w) n = Relu(c) d = Conv(n, w) t = Concat <axis=1> (d, d)"
IN_ROWS = SimpleNamespace(
    rule="normalization-in-rows",
    tensor="n",
    node="norm",
    optional=True,
    in_passing=False,
    region=SimpleNamespace(
        before=[SimpleNamespace(operator="InstanceNormalization", inputs=["c", "g", "b"], outputs=["n"])],
        after=[SimpleNamespace(name=name, operator="Sub", outputs=[name]) for name in ("norm/rows", "norm/restored")],
    ),
)
CONVOLVED = kernel("c", "x", "c")
TOGETHER = moving("norm/rows norm/restored", "c", "n", "ReshMoveMeanSub")
STATISTICS, APPLIED = moving("norm/rows", "c", "r m", "MeanSubMulMean"), moving("norm/restored", "r m", "n", "AddSqrtDivMul")
READER = kernel("d", "n", "d")
# TensorRT's own takes 17.4 µs for 1 MB: it reads and writes that twice.
HALF = {at: cost(us=8.5) for at in range(1, 4)}
TRANSPOSED = {**HALF, 1: cost(unasked="transposition", us=8.5)}
BOTH = {**HALF, 0: cost(written=2 * MB)}
TRANSPOSITION, ROWS = moving("", "c", "q", "Tran"), moving("norm/rows", "q", "n", "MeanSub")


@pytest.mark.parametrize(
    ("kernels", "costs", "tells_it"),
    [
        ([CONVOLVED, TOGETHER, READER], {1: cost(us=20.0)}, True),
        ([CONVOLVED, STATISTICS, APPLIED, READER], {1: cost(us=20.0)}, True),
        ([CONVOLVED, TRANSPOSITION, ROWS, READER], TRANSPOSED, True),
        ([CONVOLVED, TRANSPOSITION, ROWS, READER], {**TRANSPOSED, 2: cost(us=9.5)}, False),
        ([CONVOLVED, STATISTICS, moving("norm/rows", "c r", "z", "Mean"), APPLIED, READER], HALF, False),
        ([CONVOLVED, STATISTICS, moving("norm/rows", "c r", "z", "Mean"), APPLIED, READER], {}, True),
        ([CONVOLVED, STATISTICS, moving("norm/rows n", "c r", "z", "Mean"), APPLIED, READER], HALF, True),
        ([CONVOLVED, STATISTICS, moving("norm/rows ghost", "c r", "z", "Mean"), APPLIED, READER], HALF, False),
        ([kernel("c", "x", "c c2"), STATISTICS, moving("norm/rows", "c r", "z", "Mean"), APPLIED, READER], BOTH, False),
        ([CONVOLVED, TOGETHER, moving("n", "n", "q", "Relu"), kernel("d", "q", "d")], {}, False),
        ([moving("c", "x", "c", "Mul"), TOGETHER, READER], {}, False),
        ([CONVOLVED, READER], {}, False),
        ([CONVOLVED, TOGETHER, READER, UnreadKernel("?")], {}, False),
    ],
    ids=[
        *("one kernel", "statistics apart", "a transposition before it", "with one it takes longer", "three kernels"),
        *("three short ones", "it is activated in them", "one names no node", "behind two convolutions"),
        *("an activation behind it", "behind no product", "in no kernel"),
        "a kernel that was not read",
    ],
)
def test_an_instance_norm_that_takes_no_longer_than_tensorrts_leaves_nothing_to_gain(kernels, costs, tells_it: bool) -> None:
    """Behind a convolution that takes one kernel to bring the channels to the front, and another one."""
    assert tells(kernels, costs, IN_ROWS, graph=NORMALIZED) is tells_it


def of_groups(*operators: str, data: str = "c", name: str = "norm") -> SimpleNamespace:
    before = [SimpleNamespace(operator=one, inputs=[data], outputs=["n"]) for one in operators]
    after = [SimpleNamespace(name=f"{name}/{part}", operator="Sub", outputs=[part]) for part in ("rows", "restored")]
    region = SimpleNamespace(before=before, after=after)
    return SimpleNamespace(**{**vars(IN_ROWS), "rule": "recompose-group-norm", "region": region})


GROUPS = of_groups("Reshape", "InstanceNormalization", "Reshape", "Mul", "Add")
# TensorRT's own takes 8.7 µs to read and write 1 MB once, and 1.75 for the kernel before that.
LONGER, SHORTER = {1: cost(us=11.2)}, {1: cost(us=10.3)}


@pytest.mark.parametrize(
    ("norm", "kernels", "costs", "tells_it"),
    [
        (GROUPS, [CONVOLVED, TOGETHER, READER], SHORTER, True),
        (GROUPS, [CONVOLVED, TOGETHER, READER], LONGER, False),
        (GROUPS, [moving("c", "x", "c", "Mul"), TOGETHER, READER], SHORTER, True),
        (GROUPS, [CONVOLVED, STATISTICS, APPLIED, READER], {1: cost(us=5.0), 2: cost(us=5.3)}, True),
        (GROUPS, [CONVOLVED, STATISTICS, APPLIED, READER], {1: cost(us=5.0), 2: cost(us=6.2)}, False),
        (GROUPS, [CONVOLVED, TRANSPOSITION, ROWS, READER], {1: cost(unasked="transposition", us=5.0), 2: cost(us=5.3)}, True),
        (GROUPS, [CONVOLVED, TRANSPOSITION, ROWS, READER], {1: cost(unasked="transposition", us=5.0), 2: cost(us=6.2)}, False),
        (GROUPS, [CONVOLVED, TOGETHER, moving("n", "n", "q", "Relu"), kernel("d", "q", "d")], {1: cost(us=9.0)}, False),
        (GROUPS, [CONVOLVED, READER], {}, False),
        (of_groups("Reshape", "InstanceNormalization", "Transpose"), [CONVOLVED, TOGETHER, READER], SHORTER, False),
        (of_groups("InstanceNormalization", "Mul", "Add"), [CONVOLVED, TOGETHER, READER], SHORTER, False),
        (of_groups("Reshape", "ReduceMean", "Sub"), [CONVOLVED, TOGETHER, READER], SHORTER, False),
    ],
    ids=[
        *("one kernel", "it takes longer", "behind no product", "two kernels", "two take longer", "a transposition before it"),
        *("with one it takes longer", "an activation behind it", "in no kernel", "other operators", "no groups"),
        "no layer of TensorRT's",
    ],
)
def test_a_group_norm_that_takes_no_longer_than_tensorrts_leaves_nothing_to_gain(norm, kernels, costs, tells_it: bool) -> None:
    """That reads and writes all data in one kernel, and has a second one."""
    assert tells(kernels, costs, norm, graph=NORMALIZED) is tells_it


ADDED = "c = Conv(x, w) n = Relu(c) s = Add(n, a) a = Relu(x) d = Conv(s, w) t = Concat <axis=1> (d, d)"
RESIDUAL = moving("a", "x", "a", "Relu")
# One kernel more takes 12.2 µs to read 2 MB and to write 1 MB, so that TensorRT's own and that take 22.6.
OWN_AND_SUM = 22.6


@pytest.mark.parametrize(
    ("kernels", "costs", "us", "tells_it"),
    [
        ([CONVOLVED, RESIDUAL, moving("norm/rows s", "c a", "s", "MulAdd")], {2: 2 * MB}, OWN_AND_SUM, True),
        ([CONVOLVED, RESIDUAL, moving("norm/rows s", "c a", "s", "MulAdd")], {2: 2 * MB}, OWN_AND_SUM + 1, False),
        ([CONVOLVED, kernel("a", "x", "a"), moving("norm/rows s", "c a", "s", "MulAdd")], {2: 2 * MB}, OWN_AND_SUM, False),
        ([CONVOLVED, RESIDUAL, moving("norm/rows c s", "c a", "s", "AddMul")], {2: 2 * MB}, OWN_AND_SUM, False),
        ([CONVOLVED, RESIDUAL, moving("norm/rows n", "c", "s", "MulRelu")], {}, OWN_AND_SUM, False),
    ],
    ids=["added", "it takes longer", "added to a product", "added before it is normalized", "activated alone"],
)
def test_what_is_added_to_a_group_norm_takes_tensorrts_a_kernel_more(kernels, costs, us: float, tells_it: bool) -> None:
    """But the convolution that gives the other operand may add the result, and the one that gives the data the operand."""
    measured = {2: cost(read=costs.get(2, MB), us=us)}
    assert tells([*kernels, kernel("d", "s", "d")], measured, GROUPS, graph=ADDED) is tells_it


def test_a_group_norm_that_is_read_activated_and_as_it_is_takes_tensorrts_no_kernel_more() -> None:
    """Its own gives both results in one kernel."""
    graph = "c = Conv(x, w) n = Relu(c) d = Conv(n, w) s = Add(d, c) t = Concat <axis=1> (s, s)"
    both = moving("norm/rows norm/restored n", "c", "r n", "MulAddRelu")
    kernels = [CONVOLVED, both, kernel("d s", "n r", "s")]
    assert not tells(kernels, {1: cost(written=2 * MB, us=14.0)}, GROUPS, graph=graph)
    assert tells(kernels, {1: cost(written=2 * MB, us=10.3)}, GROUPS, graph=graph)


@pytest.mark.parametrize(("us", "tells_it"), [(33.0, True), (34.5, False)], ids=["no longer", "longer"])
def test_group_norms_in_the_same_kernels_are_held_against_as_many_of_tensorrts(us: float, tells_it: bool) -> None:
    """Two take 20.9 µs, and their sum one kernel more of 12.2."""
    graph = "c = Conv(x, w) e = Conv(x, w) n = Relu(c) m = Relu(e) s = Add(n, m) d = Conv(s, w) t = Concat <axis=1> (d, d)"
    sums = moving("next/rows", "e", "q", "MeanSubMulMean")
    kernels = [CONVOLVED, kernel("e", "x", "e"), sums, moving("norm/rows next/restored s", "c q", "s", "MulAdd")]
    costs = {2: cost(us=11.0), 3: cost(read=2 * MB, us=us - 11.0)}
    following = of_groups("Reshape", "InstanceNormalization", data="e", name="next")
    assert tells([*kernels, kernel("d", "s", "d")], costs, GROUPS, following, graph=graph) is tells_it


def test_a_group_normalization_is_the_same_as_one_in_pieces() -> None:
    one = of_groups("GroupNormalization")
    kernels = [CONVOLVED, TOGETHER, READER]
    assert tells(kernels, SHORTER, one, graph=NORMALIZED)
    assert not tells(kernels, LONGER, one, graph=NORMALIZED)


def test_kernels_that_normalize_what_others_give_work() -> None:
    """A residual is added in the last kernel of the next normalization, say."""
    graph = NORMALIZED.replace("t =", "m = InstanceNorm(d) s = Add(m, n) t =").replace("(d, d)", "(s, s)")
    after = [SimpleNamespace(name=name, operator="Sub", outputs=[name]) for name in ("next/rows", "next/restored")]
    before = [SimpleNamespace(operator="InstanceNormalization", inputs=["d", "g", "b"], outputs=["m"])]
    following = SimpleNamespace(**{**vars(IN_ROWS), "tensor": "m", "region": SimpleNamespace(before=before, after=after)})
    sums = moving("next/rows", "d", "q", "MeanSubMulMeanTran")
    kernels = [CONVOLVED, TOGETHER, READER, sums, moving("next/restored s", "q n", "s", "MulAddTran"), kernel("t", "s", "t")]
    assert tells(kernels, {}, IN_ROWS, following, graph=graph)
    apart = [*kernels[:4], moving("next/restored", "q", "m", "Mul"), moving("s", "m n", "s", "AddTran"), kernel("t", "s", "t")]
    assert not tells(apart, {}, IN_ROWS, following, graph=graph)


def test_other_normalizations_and_what_is_not_convolved_are_not_understood() -> None:
    layer = SimpleNamespace(
        before=[SimpleNamespace(operator="LayerNormalization", inputs=["c", "g", "b"], outputs=["n"])],
        after=IN_ROWS.region.after,
    )
    kernels = [CONVOLVED, TOGETHER, READER]
    assert not tells(kernels, {}, SimpleNamespace(**{**vars(IN_ROWS), "region": layer}), graph=NORMALIZED)
    assert not tells(kernels, {}, SimpleNamespace(**{**vars(IN_ROWS), "region": None}), graph=NORMALIZED)
    assert not tells(kernels, {}, IN_ROWS, graph=NORMALIZED.replace("c = Conv", "c = MatMul"))
