"""The choice within a part of an engine, from what its choices cost."""

from __future__ import annotations

from trtnorm_cli.engine_cost.segments import Sums
from trtnorm_cli.tensorrt.kernel_search import launches_more, takes_longer
from trtnorm_cli.tensorrt.part_search import Part

ALL, NONE = frozenset[str](), frozenset(("a", "b", "c"))


def part(changed: Sums, unchanged: Sums, sites: tuple[str, ...] = ("a", "b", "c")) -> Part:
    return Part(sites, {ALL: changed, frozenset(sites): unchanged})


def test_a_part_keeps_its_changes_unless_they_cost_something() -> None:
    assert part(Sums(5, 2), Sums(6, 3)).best(takes_longer) == ALL
    assert part(Sums(6, 2), Sums(6, 2)).best(takes_longer) == ALL
    assert part(Sums(6, 3), Sums(6, 2)).best(takes_longer) == NONE, "a launch more in the same time"
    assert part(Sums(6, 2, 1), Sums(6, 2, 0)).best(takes_longer) == NONE, "a kernel more that is compiled on the device"


def test_time_comes_before_launches_or_behind_them() -> None:
    faster_in_more = part(Sums(5, 3), Sums(6, 2))
    assert faster_in_more.best(takes_longer) == ALL
    assert faster_in_more.best(launches_more) == NONE


def test_each_of_a_few_sites_is_left_out_alone_until_one_is_better_than_all() -> None:
    few = part(Sums(8, 4), Sums(6, 3))
    assert few.next_trial(takes_longer) == frozenset("c")
    few.tried[frozenset("c")] = Sums(8, 4)
    assert few.next_trial(takes_longer) == frozenset("b")
    few.tried[frozenset("b")] = Sums(5, 2)
    assert few.best(takes_longer) == frozenset("b")
    assert few.next_trial(takes_longer) is None


def test_nothing_is_tried_where_it_is_hopeless_or_dear() -> None:
    assert part(Sums(5, 2), Sums(6, 3)).next_trial(takes_longer) is None, "the changes gain"
    assert part(Sums(8, 3), Sums(6, 3)).next_trial(takes_longer) is None, "no launch is lost"
    assert part(Sums(8, 4), Sums(6, 3), ("a",)).next_trial(takes_longer) is None
    assert part(Sums(8, 4), Sums(6, 3), tuple("abcdef")).next_trial(takes_longer) is None
