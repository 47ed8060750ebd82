"""Guards of torch.export, solved over ranges of sizes."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.export.child.sizes.guards import (
    Sizes,
    UnreadableGuard,
    counterexample,
    legal_sizes,
    only_size,
    read_guard,
    residues,
)


@pytest.mark.parametrize(("guard", "asked", "legal"), [
    # RAFT's, where 0, 5, 6 and 7 modulo 8 are legal
    ("Eq(Mod(((H - 1)//4) - 1, 2), 0)", (135, 2160), Sizes(136, 2160, 8)),
    ("(2 + 2*(((-1) + H) // 4)) == (1 + (((-1) + H) // 2))", (13, 216), Sizes(16, 216, 4)),
    ("(2 + 2*((H - 1)//16)) == (1 + (H - 1)//8)", (100, 1000), Sizes(112, 992, 16)),
    ("H % 8 == 0", (1, 100), Sizes(8, 96, 8)),
    ("Ne(Mod(((H-1)//2),2),0)", (4, 64), Sizes(4, 64, 4)),
    ("H // 8 != 1", (8, 64), Sizes(16, 64, 1)),
    ("4 <= H and H <= 50", (1, 100), Sizes(4, 50, 1)),
    ("H >= 1", (1, 100), Sizes(1, 100, 1)),
    # 62 and 93 are legal too, and multiples of 31
    ("Eq(((H - 1)//4 + 1)*4 , ((H - 1)//32 + 1)*32)", (50, 96), Sizes(64, 96, 32)),
    ("Eq(((H - 1)//4 + 1)*4 , ((H - 1)//32 + 1)*32)", (50, 95), Sizes(64, 64, 32)),
    ("H <= 70", (50, 95), Sizes(50, 70, 1)),
    ("Eq(H, 24)", (8, 64), None),
    ("Eq(Mod(H, 8), 3)", (8, 64), None),
    ("H > 200", (8, 64), None),
])  # fmt: skip
def test_what_remains_of_a_range(guard, asked, legal):
    assert legal_sizes([read_guard(guard)], *asked, wanted=(asked[0] + asked[1]) // 2) == legal


def test_a_guard_that_divides_by_zero_does_not_hold_there():
    guard = read_guard("H // (H - 8) < 5")
    assert guard.holds({"H": np.array([7, 8, 9, 30])}).tolist() == [True, False, False, True]


def test_all_guards_have_to_hold():
    guards = [read_guard(text) for text in ("H % 8 == 0", "H // 8 != 1", "H % 12 == 0")]
    assert legal_sizes(guards, 8, 200, 96) == Sizes(24, 192, 24)


def test_what_remains_contains_the_wanted_size():
    """Sizes up to 10 and from 90 on are legal; the one that is tuned for decides."""
    guard = read_guard("Or(H <= 10, H >= 90)")
    assert legal_sizes([guard], 1, 100, 95) == Sizes(90, 100)
    assert legal_sizes([guard], 1, 100, 4) == Sizes(1, 10)


def test_every_size_that_is_called_legal_satisfies_the_guard():
    rng, satisfiable = np.random.default_rng(0), 0
    for _ in range(200):
        a, b, c = rng.integers(1, 12, 3)
        guard = read_guard(f"Eq(Mod((H + {a})//{b}, {c}), {rng.integers(0, c)})")
        found = legal_sizes([guard], 5, 400, int(rng.integers(5, 400)))
        if found is not None:
            first = -(-found.low // found.multiple_of) * found.multiple_of
            sizes = np.arange(first, found.high + 1, found.multiple_of)
            assert guard.holds({"H": sizes}).all()
            satisfiable += 1
    assert satisfiable > 150


def test_residues_and_the_only_size():
    guard = read_guard("Eq(Mod(((H - 1)//4) - 1, 2), 0)")
    assert residues([guard], 8, 135, 2160) == (0, 5, 6, 7)
    assert only_size(read_guard("Eq(H, 24)"), 8, 64) == 24
    assert only_size(read_guard("H % 8 == 0"), 8, 64) is None


def test_a_counterexample_of_a_guard_on_several_sizes():
    guard = read_guard("H*W > 900")
    wrong = counterexample(guard, {"H": Sizes(8, 64, 8), "W": Sizes(8, 64, 8)})
    assert wrong is not None
    assert wrong["H"] * wrong["W"] <= 900
    assert counterexample(guard, {"H": Sizes(32, 64), "W": Sizes(32, 64)}) is None


@pytest.mark.parametrize("text", ["open('x')", "H.real", "H if W else 1", "lambda: 1", "H +", "L['x'].size()[2] > 1"])
def test_nothing_but_arithmetic_is_read(text):
    with pytest.raises(UnreadableGuard):
        read_guard(text)
