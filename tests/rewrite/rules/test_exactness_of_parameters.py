"""However parameters are given, the rewritten model is the original one to the last digits of float64, and stays so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models import batchnorm, parse, random
from tests.oracle import evaluate
from trtnorm_cli.profile.rewriting import RewriteSettings

EXACT = 1e-12
EPSILON = np.float64(np.float32(1e-5))
NAMES = ("gamma", "beta", "mu", "var")
examples = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
slow_examples = settings(parent=examples, max_examples=600)


@dataclass(frozen=True)
class Case:
    """A model, what it means (``wanted``, for the inputs ``feeds``), the rule that must take it, and the user's settings."""

    graph: str
    weights: dict[str, np.ndarray]
    feeds: dict[str, np.ndarray]
    wanted: np.ndarray
    rule: str
    opset: int = 17
    settings: RewriteSettings | None = None

    def check(self, rewrite) -> None:
        model = parse(self.graph, self.weights, opset=self.opset)
        pins = {name: value.shape for name, value in self.feeds.items()}
        result = rewrite(model, pins=pins, settings=self.settings, tolerant=True)
        assert result.outcome.failed == result.outcome.undone == []
        assert self.rule in result.rules
        got = evaluate(result.model, self.feeds)["y"]
        assert got.shape == self.wanted.shape
        scale = max(float(np.max(np.abs(self.wanted))), 1.0)
        assert np.max(np.abs(got - self.wanted)) <= EXACT * scale
        assert rewrite(result.model, pins=pins, settings=self.settings).outcome.changes == []


def along(values: np.ndarray, rank: int, axis: int = 1) -> np.ndarray:
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def normalized(x: np.ndarray, p: dict[str, np.ndarray], axis: int = 1) -> np.ndarray:
    gamma, beta, mu, var = (along(p[name], x.ndim, axis) for name in NAMES)
    return (x - mu) / np.sqrt(var + EPSILON) * gamma + beta


def shape_text(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


@st.composite
def data(draw, channels: int | None = None, least: int = 2) -> np.ndarray:
    rank = draw(st.integers(least, 5))
    sizes = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    sizes[1] = channels or draw(st.integers(1, 6))
    return random(*sizes, dtype=np.float64, seed=draw(st.integers(0, 99)))


@st.composite
def computed_parameters(draw) -> Case:
    x = draw(data())
    known = batchnorm(x.shape[1], np.float64, seed=draw(st.integers(0, 99)))
    fed = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    inputs = "".join(f", double[{x.shape[1]}] {name}" for name in fed)
    graph = f"g (double[{shape_text(x.shape)}] x{inputs}) => (double[] y) {{ y = BatchNormalization(x, gamma, beta, mu, var) }}"
    return Case(
        graph,
        {name: value for name, value in known.items() if name not in fed},
        {"x": x, **{name: known[name] for name in fed}},
        normalized(x, known),
        "batchnorm-runtime-parameters",
        draw(st.sampled_from([7, 9, 13, 15, 18, 21])),
    )


@st.composite
def shaped_parameters(draw) -> Case:
    x = draw(data(draw(st.integers(2, 6))))
    channels = x.shape[1]
    known = batchnorm(channels, np.float64, seed=draw(st.integers(0, 99)))
    stored, meant = {}, {}
    for name, value in known.items():
        shape = draw(st.sampled_from([(1, channels, 1, 1), (channels, 1, 1), (1, channels), (channels, 1), (), (1,), (1, 1)]))
        single = int(np.prod(shape, dtype=int)) == 1
        stored[name] = (value[:1] if single else value).reshape(shape)
        meant[name] = np.full(channels, value[0]) if single else value
    graph = f"g (double[{shape_text(x.shape)}] x) => (double[] y) {{ y = BatchNormalization(x, gamma, beta, mu, var) }}"
    return Case(graph, stored, {"x": x}, normalized(x, meant), "batchnorm-parameters-to-vectors")


@st.composite
def read_parameters(draw) -> Case:
    count, factor = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    name = draw(st.sampled_from(["repeat-per-group", "tile", "take-head"]))
    channels = count if name == "take-head" else count * factor
    length = count * factor if name == "take-head" else count
    x = draw(data(channels))
    known = batchnorm(length, np.float64, seed=draw(st.integers(0, 99)))
    each = np.arange(channels)
    pick = {"repeat-per-group": each // factor, "tile": each % count, "take-head": each}
    graph = f"g (double[{shape_text(x.shape)}] x) => (double[] y) {{ [bn] y = BatchNormalization(x, gamma, beta, mu, var) }}"
    wanted = normalized(x, {key: value[pick[name]] for key, value in known.items()})
    asked = RewriteSettings(mismatch={"bn": name})
    return Case(graph, known, {"x": x}, wanted, "repair-batchnorm-channels", settings=asked)


@st.composite
def another_axis(draw) -> Case:
    x = draw(data(draw(st.integers(1, 3)), least=3))
    axis = draw(st.sampled_from([a for a in range(x.ndim) if a != 1]))
    sizes = list(x.shape)
    sizes[axis] = 5
    x = random(*sizes, dtype=np.float64)
    known = batchnorm(5, np.float64, seed=draw(st.integers(0, 99)))
    graph = f"g (double[{shape_text(x.shape)}] x) => (double[] y) {{ [bn] y = BatchNormalization(x, gamma, beta, mu, var) }}"
    return Case(graph, known, {"x": x}, normalized(x, known, axis), "repair-batchnorm-channels")


@st.composite
def tiled_parameters(draw) -> Case:
    x = draw(data())
    batch, channels, *rest = x.shape
    known = batchnorm(channels, np.float64, seed=draw(st.integers(0, 99)))
    folded = [1, draw(st.sampled_from([-1, batch * channels])), *(draw(st.sampled_from([0, size])) for size in rest)]
    tiles = " ".join(f"t_{name} = Tile({name}, n)" for name in NAMES)
    read = ", ".join(f"t_{name}" for name in NAMES)
    graph = (
        f"g (double[{shape_text(x.shape)}] x) => (double[] y) {{ n = Shape <start=0, end=1> (x) f = Reshape(x, fs) {tiles}"
        f" b = BatchNormalization(f, {read}) us = Shape(x) y = Reshape(b, us) }}"
    )
    return Case(graph, {**known, "fs": np.array(folded)}, {"x": x}, normalized(x, known), "untile-batchnorm", 18)


@st.composite
def batch_statistics(draw) -> Case:
    x = draw(data())
    x = x * 3 + 1
    known = batchnorm(x.shape[1], np.float64, seed=draw(st.integers(0, 99)))
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    statistics = {"mu": x.mean(axis=axes), "var": x.var(axis=axes)}
    opset = draw(st.sampled_from([7, 9, 14, 17, 18, 21]))
    mode, outputs = ("<training_mode=1>", "y, m, v") if opset >= 14 else ("", "y, m, v, sm, sv")
    graph = (
        f"g (double[{shape_text(x.shape)}] x) => (double[] y) "
        f"{{ {outputs} = BatchNormalization {mode} (x, gamma, beta, mu, var) }}"
    )
    return Case(graph, known, {"x": x}, normalized(x, {**known, **statistics}), "batchnorm-batch-statistics", opset)


CASES = {
    "computed": computed_parameters(),
    "shaped": shaped_parameters(),
    "read": read_parameters(),
    "another axis": another_axis(),
    "tiled": tiled_parameters(),
    "training": batch_statistics(),
}


@pytest.mark.parametrize("kind", CASES)
def test_exact(rewrite, kind):
    @examples
    @given(CASES[kind])
    def check(case: Case) -> None:
        case.check(rewrite)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_exact_for_many(rewrite, kind):
    @slow_examples
    @given(CASES[kind])
    def check(case: Case) -> None:
        case.check(rewrite)

    check()
