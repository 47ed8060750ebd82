"""Which sizes satisfy conditions, and how that is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnorm_cli.shapes.parse import parse_expression
from trtnorm_cli.shapes.solve import SizeRule, solve


def solved(*conditions: str, symbol: str = "H", up_to: int = 3840, **fixed: int):
    return solve([parse_expression(text) for text in conditions], symbol, up_to, fixed)


@pytest.mark.parametrize(("conditions", "text"), [
    (["H % 8 == 0"], "H must be ≡ 0 (mod 8)"),
    (["Eq(Mod(((H - 1)//4) - 1, 2), 0)"], "H mod 8 must be in {0, 5, 6, 7}"),
    (["(2 + 2*((H - 1)//16)) == (1 + (H - 1)//8)"], "H mod 16 must be in {0, 9, 10, 11, 12, 13, 14, 15}"),
    (["Ne(Mod(((H-1)//2), 2), 0)"], "H mod 4 must be in {0, 3}"),
    (["H >= 33"], "H must be at least 33"),
    (["H >= 33", "H % 8 == 0"], "H must be ≡ 0 (mod 8) and at least 40"),
    (["H == 224"], "H must be 224"),
    (["H//16 == 14"], "H must be from 224 to 239"),
    (["H <= 512"], "H must be at most 512"),
    (["H <= 512", "H % 8 == 0"], "H must be ≡ 0 (mod 8) and at most 512"),
    (["Or(Eq(H, 3), Eq(H, 5))"], "H must be 3 or 5"),
    (["Or(H % 4 == 0, H == 3)"], "H must be ≡ 0 (mod 4) (or 3)"),
    (["Or(H % 4 == 0, H == 9)"], "H must be ≡ 0 (mod 4) (or 9)"),
    (["H % 320 == 160"], "H must be ≡ 160 (mod 320)"),
    (["H % 32 != 5"], "H mod 32 must not be in {5}"),
    (["H % 64 < 40"], "H must satisfy H % 64 < 40"),
    (["H*H == 50"], "no value of H up to 7681 satisfies H*H == 50"),
    (["H >= 1"], ""),
    (["H == W"], "H must be 7"),
])  # fmt: skip
def test_rules_in_words(conditions, text):
    assert solved(*conditions, W=7).text() == text


def test_the_next_legal_values():
    eights = solved("H % 8 == 0")
    assert eights.neighbours(135) == (128, 136)
    assert eights.neighbours(2156) == (2152, 2160)
    assert eights.neighbours(2160) == (2160,)
    assert (eights.nearest(135), eights.nearest(132), eights.nearest(3)) == (136, 136, 8)
    assert (eights.at_least(2156, 2159), eights.at_most(7)) == (None, None)


def test_a_legal_value_far_away_is_found():
    assert solved("H % 100000 == 0").at_least(1) == 100000


@pytest.mark.parametrize(("condition", "multiple"), [
    ("H % 8 == 0", 8), ("H % 8 == 4", None), ("H >= 3", None), ("Or(H % 4 == 0, H == 3)", None), ("H == 8", None),
])  # fmt: skip
def test_a_multiple_to_suggest(condition, multiple):
    rule = solved(condition).rule()
    assert rule is not None
    assert rule.multiple_of == multiple


def test_the_rule_as_data():
    assert solved("H % 8 == 3").rule() == SizeRule(8, (3,), 3, None)
    assert solved("H == 9").rule() == SizeRule(1, (0,), 9, 9)


def test_a_division_by_zero_refuses_nothing():
    assert solved("8 // (H - 4) == 2").allows(4)
    assert 4 in solved("8 // (H - 4) == 2").neighbours(4)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 9), st.integers(1, 200), st.integers(1, 5000))
def test_rule_and_neighbours_are_what_trying_every_value_says(modulus, residue, divisor, least, value):
    legal = solved(f"((H + {residue}) // {divisor}) % {modulus} == 0", f"H >= {least}")

    def holds(h: int) -> bool:
        return ((h + residue) // divisor) % modulus == 0 and h >= least

    assert all(legal.allows(h) == holds(h) for h in range(1, 300))
    above = next(h for h in range(value, value + 10000) if holds(h))
    assert legal.at_least(value) == above
    rule = legal.rule()
    assert rule is not None
    tried = range(1, 2000)
    assert [h for h in tried if holds(h)] == [
        h for h in tried if (h >= rule.least and h % rule.modulus in rule.residues) or h in rule.extra
    ]


def test_where_a_condition_has_no_value_the_others_are_still_judged():
    conditions = ["H % (H // 16) == 0", "(H // (H - 7)) % 2 == 1"]
    legal = solved(*conditions, up_to=100)

    def holds(h: int) -> bool:
        return (h // 16 == 0 or h % (h // 16) == 0) and (h == 7 or (h // (h - 7)) % 2 == 1)

    assert [h for h, is_legal in enumerate(legal.mask[:500], 1) if is_legal] == [h for h in range(1, 501) if holds(h)]
    assert all(legal.allows(h) == holds(h) for h in range(1, 60))
