"""Some of the random models that ``make fuzz`` judges, and the judges themselves: they notice what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from onnx import numpy_helper

from benchmarks.random_models import judge as judging
from benchmarks.random_models.judge import Find, judge
from benchmarks.random_models.models import RandomModel, models
from tests.models import batchnorm, parse, random
from trtnorm_cli.evaluate.ort_runner import one_child
from trtnorm_cli.rewrite.rewriting import RewritingSession

pytestmark = pytest.mark.rtx
GRAPH = "g (float[N, 4, 6, 5] x) => (float[N, 4, 6, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"


@pytest.fixture
def model() -> RandomModel:
    return RandomModel(parse(GRAPH, {"w": random(4, 4, 1, 1), **batchnorm(4)}), {"N": (2, 3)})


def test_random_models_are_judged_alike(tmp_path_factory):
    counted: Counter[str] = Counter()

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(models())
    def judged(model: RandomModel) -> None:
        judge(model, tmp_path_factory.mktemp("model"), counted)

    with one_child():
        judged()
    assert counted["models"] >= 8
    assert counted["TensorRT's network of the rewriting"] >= 6
    assert len([key for key in counted if key.startswith("rule ")]) >= 3


def test_a_sound_model_passes_every_judge(model, tmp_path):
    counted: Counter[str] = Counter()
    judge(model, tmp_path, counted)
    assert counted["rule fold-batchnorm-conv"] == 1
    assert counted["TensorRT's network of the rewriting"] == 2


def test_a_wrong_rewriting_is_found(model, tmp_path, monkeypatch):
    real = RewritingSession.rewrite

    def wrong(self, *arguments):
        rewriting = real(self, *arguments)
        spoilt = onnx.ModelProto()
        spoilt.CopyFrom(rewriting.model)
        tensor = max(spoilt.graph.initializer, key=lambda one: len(one.raw_data))
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.0001), tensor.name))
        return replace(rewriting, model=spoilt)

    monkeypatch.setattr(RewritingSession, "rewrite", wrong)
    with pytest.raises(Find, match="rewriting, optimize: always: another value"):
        judge(model, tmp_path, Counter())


def test_wrong_sizes_are_found(model, tmp_path, monkeypatch):
    real = judging.values_at
    monkeypatch.setattr(judging, "values_at", lambda *arguments: [size + 1 for size in real(*arguments)])
    with pytest.raises(Find, match="sizes by rules are others"):
        judge(model, tmp_path, Counter())


def test_a_crash_is_found_by_its_place(model, tmp_path, monkeypatch):
    def crashes(*arguments):
        raise KeyError("bn")

    monkeypatch.setattr("trtnorm_cli.rewrite.rewriting.clean", crashes)
    with pytest.raises(Find, match=r"rewriting ends with KeyError in rewriting\.py, __init__"):
        judge(model, tmp_path, Counter())
