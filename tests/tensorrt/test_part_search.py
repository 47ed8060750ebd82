"""The choice within a part of an engine, from what its choices cost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from tests.models import batchnorm, parse, random
from tests.tensorrt.test_nothing_to_gain import HEADS, PRODUCT, scale
from tests.tensorrt.told import built, cost, kernel, moving
from trtnorm_cli.cli import run
from trtnorm_cli.engine_cost.segments import Sums
from trtnorm_cli.tensorrt.kernel_search import launches_more, takes_longer
from trtnorm_cli.tensorrt.part_search import Part, PartSearch, aligned

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


@pytest.mark.parametrize(("tries", "left_out"), [(True, frozenset("c")), (False, None)], ids=["for kernels", "for time"])
def test_single_sites_are_left_out_for_kernels_alone(tries: bool, left_out: frozenset[str] | None) -> None:
    """What is left out together takes as long, but for kernels that are compiled where the engine runs."""
    search, few = object.__new__(PartSearch), part(Sums(8, 4), Sums(6, 3))
    search.worse, search.tries_single_sites, search.parts = takes_longer, tries, [few]
    search.every, search.none = (SimpleNamespace(sums=one) for one in (Sums(8, 4), Sums(6, 3)))
    search.built = {ALL: search.every, NONE: search.none}
    assert search._next() == left_out


TWO_PROFILES = """optimization_profiles:
  - name: small
    dims: {{N: 1, H: {{min: 4, opt: 4, max: 8}}}}
    weight: {small}
  - name: large
    dims: {{N: 4, H: {{min: 64, opt: 128, max: 160}}}}
    weight: {large}
"""


@pytest.mark.rtx
def test_what_a_part_costs_is_the_mean_of_all_profiles_by_their_weights(tmp_path, monkeypatch, capsys):
    """The large profile takes longer, so that the more often it runs the longer a run takes, and each part of it."""
    monkeypatch.chdir(tmp_path)
    weights = {"w": random(8, 8, 3, 3), **batchnorm(8)}
    text = """g (float[N,8,H,H] x) => (float[N,8] y) {
      c = Conv <pads = [1, 1, 1, 1]> (x, w) n = BatchNormalization(c, gamma, beta, mu, var) r = Relu(n)
      y = ReduceMean <axes = [2, 3], keepdims = 0> (r) }"""
    onnx.save(parse(text, weights, opset=17), "m.onnx")
    searches: list[PartSearch] = []
    real = PartSearch.__post_init__
    monkeypatch.setattr(PartSearch, "__post_init__", lambda search: searches.append(search) or real(search))
    for small, large in ((1, 1), (9, 1)):
        Path("p.yaml").write_text(TWO_PROFILES.format(small=small, large=large))
        assert run(["build", "m.onnx", "-p", "p.yaml", "--json", "--no-compare"]) == 0
        assert "is up to date" not in capsys.readouterr().err, "the weights decide about the engine"
    even, often_small = searches
    for search in searches:
        assert search.none.sums.launches == search.none.total.launches, "the kernels of both profiles"
        assert search.none.sums.us == pytest.approx(search.none.total.us, rel=1e-3)
    assert often_small.none.sums.us < even.none.sums.us
    assert often_small.parts[0].tried[ALL].us < even.parts[0].tried[ALL].us


@pytest.mark.parametrize(
    ("built", "expected", "pays"),
    [
        ([Sums(1643.1, 57, 1), Sums(1642.0, 57, 53)], Sums(1641.1, 57, 3), False),
        ([Sums(1648.0, 58, 1), Sums(1642.0, 57, 53)], Sums(1641.1, 57, 3), True),
        ([Sums(1724.8, 57, 17), Sums(1715.0, 57, 53)], Sums(1713.8, 57, 21), True),
        ([Sums(2174.9, 236, 55), Sums(3118.3, 329, 93)], Sums(2174.9, 236, 49), False),
        ([Sums(2174.9, 236, 55), Sums(3118.3, 329, 93)], Sums(2174.9, 236, 44), True),
        ([Sums(1000.0, 57, 0), Sums(1001.0, 57, 1)], Sums(999.0, 57, 0), False),
        ([Sums(1000.0, 57, 1), Sums(1001.0, 57, 1)], Sums(996.0, 57, 1), False),
        ([Sums(1000.0, 57, 1), Sums(1001.0, 57, 1)], Sums(994.0, 57, 1), True),
        ([Sums(1000.0, 57, 1), Sums(1001.0, 57, 1)], Sums(999.0, 56, 1), True),
    ],
    ids=[
        *("hardly faster", "fewer kernels", "fewer to compile than the best", "a tenth of those to compile", "a fifth"),
        *("none to compile", "less than half a percent", "more", "a kernel"),
    ],
)
def test_a_further_engine_is_built_for_kernels_or_for_half_a_percent_of_the_time(built, expected, pays) -> None:
    search = object.__new__(PartSearch)
    search.worse, search.built = takes_longer, {frozenset(str(n)): SimpleNamespace(sums=one) for n, one in enumerate(built)}
    assert search._pays(expected) is pays


@pytest.mark.parametrize(
    ("every", "none", "best", "little"),
    [
        (Sums(1003.0, 58, 1), Sums(1001.0, 57, 46), Sums(999.0, 57, 1), True),
        (Sums(1003.0, 58, 1), Sums(1001.0, 57, 46), Sums(997.0, 57, 1), False),
        (Sums(1003.0, 58, 2), Sums(1001.0, 57, 46), Sums(999.0, 57, 1), False),
        (Sums(1003.0, 58, 2), Sums(1001.0, 57, 1), Sums(1002.0, 57, 2), False),
        (Sums(621.4, 127, 32), Sums(659.0, 119, 46), Sums(619.0, 124, 28), True),
        (Sums(621.4, 127, 32), Sums(659.0, 119, 46), Sums(619.0, 124, 25), False),
        (Sums(1003.0, 58, 1), Sums(990.0, 57, 46), None, False),
        (Sums(1003.0, 58, 1), Sums(1001.0, 57, 46), None, True),
    ],
    ids=[
        *("less than half a percent", "more", "a kernel to compile", "one without any change", "a tenth of those to compile"),
        *("a fifth", "no change is faster"),
        "it is not known what is best",
    ],
)
def test_every_change_stays_where_fewer_save_less_than_a_build_is_worth(every, none, best, little, monkeypatch) -> None:
    search = object.__new__(PartSearch)
    search.parts = []
    search.worse = takes_longer
    search.every, search.none = (SimpleNamespace(sums=one, total=one) for one in (every, none))
    monkeypatch.setattr(PartSearch, "_expected", lambda search, left_out: best)
    assert search.leaves_little is little


def test_changes_of_one_product_are_decided_together() -> None:
    """TinyViT folds a bias and an attention's scale into the product of its heads, which are then split in three kernels."""

    def found(*products: str) -> list[tuple[tuple[str, ...], Sums, Sums]]:
        changes = [
            scale(tensor, "MatMul Mul", {name: "MatMul"}, in_passing=False) for tensor, name in zip("bm", products, strict=True)
        ]
        for change in changes:
            change.node = f"before {change.tensor}"
        split = [moving("v", "b", "v", "Tran"), moving("z", "b", "z", "Tran"), kernel("m", "v z", "m", "gemm")]
        whole = [kernel("v z", "b", "v z", "kgen"), kernel("m", "v z", "m", "gemm")]
        with_them, without = ([PRODUCT, *split], {}), ([PRODUCT, *whole], {0: cost(us=1.5)})
        sides = [built(*with_them, *changes, graph=HEADS), built(*without, graph=HEADS)]
        return [(one.sites, one.changed, one.unchanged) for one in aligned(*sides)]

    assert found("p", "p") == [(("b", "m"), Sums(4.0, 4), Sums(3.5, 3))]
    assert found("p", "m") == [(("b",), Sums(3.0, 3), Sums(2.5, 2)), (("m",), Sums(1.0, 1), Sums(1.0, 1))]
