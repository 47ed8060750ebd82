"""Models as foreign files may be: every model of the tests of rules, spoilt in many ways. None is a defect of the program.

Each ends with an error that is explained, or with a model that computes the same.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.rewrite.mutations import SPOILT, models_of_rules, spoilt
from tests.rewrite.rules.quantised import FLOATS
from tests.rewritings import rewrite
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite import driver, rewriting
from trtnorm_cli.rewrite.ambiguities import tolerant_types
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.rewrite.proof.check_shapes import check_types
from trtnorm_cli.rewrite.proof.sampling import draw
from trtnorm_cli.rewrite.rule import Match
from trtnorm_cli.rewrite.rules import RULES

_EVERY = 61
# Data of half precision beside constants that are not: what each operator rounds is its own affair.
_ROUNDED = ("data of half precision",)
all_models = functools.cache(models_of_rules)


@pytest.fixture
def one_runner(monkeypatch, runner):
    """ONNX Runtime is started once, not for each model."""

    class Shared:
        def __enter__(self):
            return runner

        def __exit__(self, *exception):
            return None

        def __getattr__(self, name):
            return getattr(runner, name)

        def close(self):
            """The next model needs it, too."""

    monkeypatch.setattr(rewriting, "OrtRunner", Shared)


def ends_well(model: onnx.ModelProto, path: Path, compares: bool) -> None:
    """Plan, rewrite and prepare ``model`` as the commands do."""
    path.write_bytes(model.SerializeToString())
    try:
        loaded = load_model(path)
        rewriting.plan(loaded)
        result = rewrite(loaded)
        broken = [undone for undone in result.undone if "Error: " in undone.reason and "cannot be" not in undone.reason]
        assert broken == []
        result.require_all_checks_passed()
        if compares:
            computes_the_same(result.meant or loaded.proto, result.model)
        prepare(OpenedModel.of_file(path))
    except TrtnormError as error:
        if error.exit_code not in (2, 3, 4):
            raise


def computes_the_same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Where the model can be evaluated at all."""
    try:
        kinds = {name: kind for name, kind in check_types(before, None).items() if name in model_inputs(before)}
    except onnx.shape_inference.InferenceError:  # what the file says of its shapes contradicts itself
        return
    if any(not kind.is_static for kind in kinds.values()):
        return
    shapes = {name: tuple(int(size) for size in kind.shape) for name, kind in kinds.items()}
    feeds = draw(np.random.default_rng(0), kinds, shapes)
    try:
        wanted = evaluate_float64(before, feeds).outputs
    except ReferenceUnavailable:
        return
    got = evaluate_float64(after, feeds).outputs
    for name, values in wanted.items():
        assert got[name].shape == values.shape
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else np.zeros(0)
        largest = np.max(np.abs(finite), initial=0.0)
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-3 * largest, equal_nan=True)


def test_every_rule_has_a_model_here():
    models = {name.rsplit("-", 1)[0].replace("_", "-") for name in all_models()}
    assert {rule.name for rule in RULES} <= models


@pytest.mark.parametrize("way", SPOILT)
def test_some_models_in_every_way(one_runner, tmp_path, way):
    """Each rule's models come up in one way or another."""
    offset = list(SPOILT).index(way)
    for name in list(all_models())[offset::_EVERY]:
        model = spoilt(all_models()[name], SPOILT[way])
        if model is not None:
            ends_well(model, tmp_path / f"{name}.onnx", way not in _ROUNDED)


def test_an_operator_of_another_domain_is_part_of_no_match():
    """It may do what it wants, however it is called. One model shows it for each rule."""
    shown: set[str] = set()
    for name, model in all_models().items():
        rules = {match.rule.name for match in planned(model)}
        for index in range(len(model.graph.node) if rules - shown else 0):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            changed.graph.node[index].domain = "elsewhere"
            changed.opset_import.add(domain="elsewhere", version=1)
            taken = {node.op for match in planned(changed) for node in match.nodes if node.domain == "elsewhere"}
            assert taken == set(), name
        shown |= rules
    assert len(shown) > len(RULES) // 2


def planned(model: onnx.ModelProto) -> tuple[Match, ...]:
    """Where rules fit in the model as it stands, without a proof."""
    try:
        return driver.plan(open_model(model, None), RULES, tolerant_types(model, None)[0], settings=FLOATS).matches
    except TrtnormError:
        return ()


@pytest.mark.slow
@pytest.mark.parametrize("way", SPOILT)
def test_every_model_in_every_way(one_runner, tmp_path, way):
    for name, model in all_models().items():
        changed = spoilt(model, SPOILT[way])
        if changed is not None:
            ends_well(changed, tmp_path / f"{name}.onnx", way not in _ROUNDED)
