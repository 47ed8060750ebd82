"""The search for the sites to leave out, on made-up costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtnorm_cli.rewrite.kernels import Cost, choose


def counting(saves: dict[int, int], base: int = 100):
    """Leaving out a site changes the number of launches by ``-saves[site]``; every site left out makes the engine larger."""

    def measure(left_out: frozenset[int]) -> Cost:
        return Cost(base - sum(saves.get(site, 0) for site in left_out), 1000 + len(left_out))

    return measure


def test_only_the_site_that_costs_a_launch_is_left_out() -> None:
    found = choose([range(64)], counting({63: 1}))
    assert found.left_out == {63}
    assert found.builds <= 16


def test_nothing_is_left_out_where_every_change_pays() -> None:
    found = choose([range(40)], counting(dict.fromkeys(range(40), -1)))
    assert found.left_out == frozenset()
    assert found.builds <= 3


def test_equal_launches_keep_the_smaller_engine() -> None:
    assert choose([range(10)], counting({})).left_out == frozenset()


def test_sites_that_only_pay_together_are_left_out_together() -> None:
    def measure(left_out: frozenset[int]) -> Cost:
        return Cost(10 - (2 if {3, 7} <= left_out else 0), 1000 + len(left_out))

    assert {3, 7} <= choose([range(8)], measure).left_out


@given(
    st.dictionaries(st.integers(0, 30), st.integers(-2, 2)),
    st.integers(1, 31),
    st.integers(2, 60),
)
def test_the_choice_is_never_worse_than_all_or_nothing(saves: dict[int, int], count: int, most: int) -> None:
    measure = counting(saves)
    found = choose([range(count // 2), range(count // 2, count)], measure, most)
    assert found.best <= measure(frozenset())
    assert found.best <= measure(frozenset(range(count)))
    assert found.builds <= most
