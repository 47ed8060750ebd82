"""Two engines held against each other, on made-up kernels."""

from __future__ import annotations

from trtnorm_cli.engine_cost.segments import Segment, Side, Sums, segments
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, UnreadKernel


def kernel(reads: str, writes: str, *nodes: str) -> Kernel:
    tensors = [tuple(KernelTensor(name, (1,), "Float", "Linear") for name in names.split()) for names in (reads, writes)]
    return Kernel(f"k_{writes}", "kgen", "", *tensors, nodes)


def side(kernels: list[Kernel | UnreadKernel], us: list[float]) -> Side:
    """Each kernel moves ten bytes a microsecond."""
    return Side(kernels, [KernelCost("", int(8 * one), int(2 * one), 0, one, "memory") for one in us])


def sums(us: float, launches: int) -> Sums:
    return Sums(us, launches)


def test_a_fold_is_decided_by_the_kernels_that_come_of_its_nodes() -> None:
    """Folded, the second convolution leaves its mean a kernel of its own; the first is the same either way."""
    folded = [kernel("x", "a", "c1", "r1"), kernel("a", "b", "c2"), kernel("b", "y", "r2", "mean")]
    unfolded = [kernel("x", "a", "c1", "bn1", "r1"), kernel("a", "y", "c2", "bn2", "r2", "mean")]
    sites = {"first": ["bn1", "c1"], "second": ["bn2", "c2"]}
    found = segments(side(folded, [2.0, 2.0, 3.0]), side(unfolded, [2.5, 4.0]), sites)
    assert found == [Segment(("first",), sums(2.0, 1), sums(2.5, 1)), Segment(("second",), sums(5.0, 2), sums(4.0, 1))]


def test_a_transposition_belongs_to_what_it_stands_between() -> None:
    changed = [kernel("x", "a", "conv"), kernel("a", "y", "norm/mean", "norm/scaled")]
    unchanged = [kernel("x", "a", "conv"), kernel("a", "t"), kernel("t", "y", "norm")]
    joined = [("norm/mean", "norm/scaled")]
    found = segments(side(changed, [1.0, 5.0]), side(unchanged, [1.0, 2.0, 4.0]), {"y": ["norm", "norm/scaled"]}, joined)
    assert found == [Segment(("y",), sums(6.0, 2), sums(7.0, 3))]


def test_sites_whose_kernels_overlap_are_decided_together() -> None:
    changed = [kernel("x", "y", "a", "b")]
    unchanged = [kernel("x", "m", "a"), kernel("m", "y", "b"), UnreadKernel("odd")]
    found = segments(side(changed, [1.0]), side(unchanged, [2.0, 3.0, 9.0]), {"m": ["a"], "y": ["b"]})
    assert found == [Segment(("m", "y"), sums(1.0, 1), sums(5.0, 2))]


def test_what_a_change_costs_its_neighbour_counts() -> None:
    """The bias brought the data into the layout of the product behind it; without a bias that product takes two kernels more,
    one of which computes sizes and hands nothing on. A third product is the same either way."""
    changed = [
        kernel("x", "p", "matmul"),
        kernel("", "size"),
        kernel("p", "t", "attention"),
        kernel("t", "q", "attention"),
        kernel("q", "y", "other"),
    ]
    unchanged = [kernel("x", "p", "matmul"), kernel("p", "b", "add"), kernel("b", "q", "attention"), kernel("q", "y", "other")]
    sites = {"b": ["add", "matmul"], "y": ["other"]}
    found = segments(side(changed, [2.0, 1.0, 2.0, 2.0, 9.0]), side(unchanged, [2.0, 1.0, 2.0, 9.0]), sites)
    assert found == [Segment(("b",), sums(7.0, 4), sums(5.0, 3)), Segment(("y",), sums(9.0, 1), sums(9.0, 1))]


def test_a_neighbour_that_stays_the_same_is_no_part_of_it() -> None:
    changed = [kernel("x", "p", "conv"), kernel("p", "y", "mean")]
    unchanged = [kernel("x", "c", "conv"), kernel("c", "p", "norm"), kernel("p", "y", "mean")]
    found = segments(side(changed, [2.0, 5.0]), side(unchanged, [2.0, 1.0, 5.0]), {"p": ["conv", "norm"]})
    assert found == [Segment(("p",), sums(2.0, 1), sums(3.0, 2))]


def test_kernels_that_are_compiled_on_the_device_are_counted() -> None:
    fused = [Kernel("k", "runtime_fusion", "", (), (), ("conv", "norm"))]
    found = segments(side([kernel("x", "y", "conv")], [2.0]), side(fused, [2.0]), {"y": ["conv", "norm"]})
    assert found == [Segment(("y",), Sums(2.0, 1, 0), Sums(2.0, 1, 1))]


def test_a_result_that_is_written_twice_for_a_change_behind_it_is_a_cost_of_that_change() -> None:
    """The changed product wants its data in another layout, which the kernel before it writes beside the one that others read.

    Held apart, the change of the product would gain two microseconds, and that of the sum cost two. The third is the same.
    """
    changed = [kernel("x", "a b", "add", "norm"), kernel("a", "c", "matmul"), kernel("b c", "y", "other")]
    unchanged = [kernel("x", "a", "add", "norm"), kernel("a", "b", "matmul"), kernel("b a", "y", "other")]
    sites = {"a": ["add"], "c": ["matmul"], "y": ["other"]}
    found = segments(side(changed, [5.0, 4.0, 9.0]), side(unchanged, [3.0, 6.0, 9.0]), sites)
    assert found == [Segment(("a", "c"), sums(9.0, 2), sums(9.0, 2)), Segment(("y",), sums(9.0, 1), sums(9.0, 1))]
