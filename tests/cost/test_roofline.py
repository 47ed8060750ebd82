"""Estimates of single kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtnorm_cli.cost.device import DEVICES
from trtnorm_cli.cost.roofline import CONSTANTS, Constants, Rows, Work, estimate

H200, RTX3060 = DEVICES["h200"], DEVICES["rtx-3060"]


def normalization(count: int, length: int, size: int = 4, **kinds: object) -> Work:
    """A kernel that normalizes rows: it reads and writes each element."""
    rows = Rows(count, length, size, contiguous=bool(kinds.get("contiguous", True)), split=kinds.get("split"))  # type: ignore[arg-type]
    return Work(count * length * size, count * length * size, 8 * count * length, "float32", rows)


def copy(work: Work) -> Work:
    return replace(work, rows=None, operations=0)


def slowdown(work: Work, device=H200) -> float:
    return estimate(work, device).seconds / estimate(copy(work), device).seconds


def test_a_copy_is_bound_by_memory():
    work = Work(10**9, 10**9, 0, "float32")
    found = estimate(work, H200)
    assert found.bound == "memory"
    assert found.lower_bound
    assert found.seconds == pytest.approx(2e9 / (H200.bandwidth * CONSTANTS.achieved) + H200.launch)


def test_a_product_is_bound_by_arithmetic_and_faster_in_half_precision():
    work = Work(10**6, 10**6, 10**12, "float32")
    assert estimate(work, H200).bound == "arithmetic"
    assert estimate(replace(work, type="float16"), H200).seconds < estimate(work, H200).seconds


def test_a_small_kernel_costs_its_launch():
    found = estimate(Work(1000, 1000, 1000, "float16"), RTX3060)
    assert found.bound == "launch"
    assert found.seconds == pytest.approx(RTX3060.launch, rel=0.01)


def test_many_short_rows_cost_a_copy():
    assert slowdown(normalization(16384, 4096)) == pytest.approx(1.0, rel=0.01)


def test_few_long_rows_are_bound_by_the_blocks_that_reduce_them():
    found = estimate(normalization(16, 2160 * 3840), H200)
    assert found.bound == "rows"
    assert not found.lower_bound
    assert "one thread block a row assumed" in found.note
    assert slowdown(normalization(16, 2160 * 3840)) > 5


def test_the_same_rows_cost_less_where_several_blocks_share_them():
    work = normalization(16, 2160 * 3840)
    assert work.rows is not None
    shared = replace(work, rows=replace(work.rows, split=True))
    assert estimate(shared, H200).bound == "memory"
    assert estimate(shared, H200).seconds < estimate(work, H200).seconds / 5


def test_a_known_block_a_row_is_no_assumption():
    found = estimate(normalization(16, 2160 * 3840, split=False), H200)
    assert found.bound == "rows"
    assert found.lower_bound
    assert "assumed" not in found.note


def test_more_rows_of_one_length_never_cost_less():
    times = [estimate(normalization(count, 65536), H200).seconds for count in (1, 4, 16, 64, 132, 256, 1024, 4096)]
    assert times == sorted(times)


def test_a_device_with_little_bandwidth_loses_less_on_few_rows():
    work = normalization(16, 2160 * 3840)
    assert slowdown(work, RTX3060) < slowdown(work, H200) / 3


def test_a_block_waits_for_one_answer_a_step():
    work = normalization(1, 2**20, split=False)
    steps = 2**20 / (1024 * 4)
    waited = estimate(work, H200).seconds - estimate(copy(work), H200).seconds
    assert waited == pytest.approx(steps * (CONSTANTS.latency + CONSTANTS.cache_latency))
    assert estimate(work, H200, Constants(latency=700e-9)).seconds > 1.5 * estimate(work, H200).seconds


def test_a_larger_block_waits_less_often():
    work = normalization(4, 2**20, split=False)
    assert work.rows is not None
    small = replace(work, rows=replace(work.rows, threads=128))
    assert estimate(small, H200).seconds > 6 * estimate(work, H200).seconds


def test_each_reduction_reads_its_rows():
    once = normalization(4, 2**20, split=False)
    assert once.rows is not None
    twice = replace(once, rows=replace(once.rows, reductions=2))
    steps = 2**20 / (1024 * 4)
    assert estimate(twice, H200).seconds - estimate(once, H200).seconds == pytest.approx(steps * CONSTANTS.cache_latency)
    held = normalization(4, 4096, split=False)
    assert held.rows is not None
    assert estimate(replace(held, rows=replace(held.rows, reductions=2)), H200) == estimate(held, H200)


def test_a_row_that_a_block_can_hold_is_asked_for_at_once():
    held, longer = normalization(16, H200.block_memory // 4), normalization(16, H200.block_memory // 4 + 1)
    assert estimate(held, H200).lower_bound
    assert estimate(held, H200).bound != "rows"
    assert estimate(longer, H200).seconds > 2 * estimate(held, H200).seconds


def test_rows_that_neither_block_nor_cache_holds_are_read_from_memory_twice():
    def cost_of_a_byte(count: int) -> float:
        work = normalization(count, 65536, split=False)
        return (estimate(work, H200).seconds - H200.launch) / work.read

    wave = H200.multiprocessors * 16
    cached = replace(H200, cache=10**12)
    work = normalization(wave, 65536, split=False)
    assert estimate(work, H200).seconds > 1.2 * estimate(work, cached).seconds
    assert cost_of_a_byte(wave) == pytest.approx(cost_of_a_byte(2 * wave))


def test_a_mean_reads_its_rows_once():
    whole = normalization(64, 2**20)
    mean = replace(whole, written=64 * 4)
    assert estimate(mean, H200).seconds < estimate(whole, H200).seconds / 1.35


def test_rows_whose_elements_lie_apart_cost_more():
    apart, together = normalization(100_000, 256, contiguous=False), normalization(100_000, 256)
    assert estimate(apart, H200).seconds > 1.2 * estimate(together, H200).seconds


def test_a_transposition_costs_more_than_a_copy():
    work = Work(10**9, 10**9, 0, "float32")
    assert estimate(replace(work, transposes=True), H200).seconds > 1.02 * estimate(work, H200).seconds
