"""The manifest: one type that is written and read, and the keys that others rely on."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path

import pytest

from trtnorm_cli.errors import ModelError
from trtnorm_cli.evaluate.metrics import Distance, Metrics
from trtnorm_cli.evaluate.tolerance import Bound
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.records.comparison import (
    CandidateRecord,
    ComparisonRecord,
    FirstDifference,
    InnerRecord,
    NoDifference,
    OutputVerdict,
)
from trtnorm_cli.records.digests import FileDigest
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rule import Change, Check, Rejection, Undone
from trtnorm_cli.tensorrt.manifest import (
    Choice,
    EngineFile,
    Kernels,
    Manifest,
    Network,
    Normalizations,
    Optimization,
    Versions,
)


def of_nothing(**given) -> Manifest:
    """A manifest with nothing in it but what every one says."""
    empty = {
        "versions": Versions("0.1", "3.11", "1.23", "1.31", "tensorrt-rtx", "1.7"),
        "source": FileDigest("m.onnx", "0"),
        "engine": EngineFile("a.engine", "0", 4),
        "optimization_profiles": (),
        "cleaning": {},
        "normalizations": Normalizations({}),
        "changes": (),
        "network": Network((), (), (), {}, (), {}),
        "warnings": (),
        "optimize": Optimization("auto", None, None),
        "seconds": {},
    }
    return Manifest(**{**empty, **given})


def of_much() -> Manifest:
    """A manifest in which every record occurs, also those that a build seldom writes."""
    check = Check(1e-6, 1e-7, 1e-5, None, None, 0, {"x": [1, 2]}, "ONNX Runtime", True)
    cost = Cost(4, 280852)
    return of_nothing(
        weights=FileDigest("w.safetensors", "1"),
        changes=(Change("fold-batchnorm-conv", "bn1", ("conv1", "bn1"), ("conv1",), "shorter", check),),
        undone=(Undone("fold-batchnorm-gemm", "bn2", "its check failed", "y"),),
        refused=(Rejection("fold-batchnorm-gemm", "bn3", "another reader"),),
        optimize=Optimization("kernels", Choice(cost, cost, cost, ("y",), 2), Kernels({"kgen": 4}, 7), "a reason"),
        seconds={"build": 0.25},
        reproducible=True,
    )


def written(manifest: Manifest, path: Path) -> Path:
    path.write_text(json.dumps(manifest.to_json()))
    return path


def test_what_is_written_is_read_again(tmp_path):
    manifest = of_much()
    assert Manifest.load(written(manifest, tmp_path / "a.json")) == manifest


def test_the_names_in_the_file(tmp_path):
    values = json.loads(written(of_much(), tmp_path / "a.json").read_text())
    assert list(values) == [field.name for field in fields(Manifest)]
    assert list(values["optimize"]["chosen"]) == ["every change", "no change", "chosen", "left_out", "builds"]
    assert values["optimize"]["chosen"]["chosen"] == {"launches": 4, "engine_bytes": 280852, "us": 0.0, "compiled": 0}
    assert values["changes"][0]["check"]["float64_rel"] is None
    assert values["weights"] == {"file": "w.safetensors", "sha256": "1"}


@pytest.mark.parametrize("rest", [{"max_rel": float("inf")}, {"max_rel": float("nan")}])
def test_an_error_without_bound_survives(tmp_path, rest):
    (change,) = of_much().changes
    values = of_much().to_json()
    values["changes"][0]["check"].update(rest)
    (tmp_path / "a.json").write_text(json.dumps(values))
    (again,) = Manifest.load(tmp_path / "a.json").changes
    assert str(again.check.max_rel) == str(rest["max_rel"])
    assert again.node == change.node


def of_a_failure() -> ComparisonRecord:
    """A comparison in which every record occurs, and numbers that JSON does not know."""
    worst = Metrics(math.inf, 0.5, 1.0, math.inf, 0.25, -math.inf, (1.0, 2.0, math.inf), None, (0, 1), 1.0, 2.0, 0, 1, 1)
    bound = Bound(Distance(1e-6, 1e-6), Distance(1e-4, 1e-4))
    verdict = OutputVerdict("min", "y", worst, math.inf, 0.5, None, bound, Tolerance(atol=1e-3), math.inf, False, "too far")
    found = FirstDifference("t", "conv", 0.0, math.inf, "a", "b", "the rule r", ("a.onnx",), ("first difference: t",))
    failed = {"passed": False, "state": "failed", "kind": "onnx", "outputs": (verdict,), "notes": ("a note",)}
    candidates = (
        CandidateRecord(label="a", **failed, inner=InnerRecord("t", 1, 2, 0.5, 0.25, 2.0), blame=found),
        CandidateRecord(label="b", **failed, blame=NoDifference(("not found",))),
        CandidateRecord(label="c", **failed, error="it died"),
        CandidateRecord(label="d", **failed, unavailable="no GPU"),
    )
    return ComparisonRecord(False, "failed", ("d: no GPU",), None, "m", ("min",), {"x": "normal"}, (), candidates, {}, (), 0.5)


def test_a_comparison_that_failed_survives(tmp_path):
    path = written(of_nothing(comparison=of_a_failure()), tmp_path / "a.json")
    text = path.read_text()
    assert "Infinity" not in text
    again = Manifest.load(path)
    assert again.comparison == of_a_failure()
    assert json.dumps(again.to_json()) == text
    first, second, died, unavailable = json.loads(text)["comparison"]["candidates"]
    assert list(first) == ["passed", "state", "label", "kind", "inner", "outputs", "notes", "blame"]
    assert first["outputs"][0]["native"]["max_abs"] == "inf"
    assert first["outputs"][0]["tolerance"] == {"atol": 0.001, "rtol": None}
    assert second["blame"] == {"text": ["not found"]}
    assert list(died) == ["passed", "state", "label", "kind", "error", "outputs", "notes"]
    assert list(unavailable) == ["passed", "state", "label", "kind", "unavailable", "outputs", "notes"]


@pytest.mark.parametrize(("where", "said"), [
    (("versions",), "the manifest lacks versions"),
    (("engine", "sha256"), "the manifest lacks engine.sha256"),
    (("changes", 0, "check", "passed"), "the manifest lacks changes.0.check.passed"),
])  # fmt: skip
def test_what_is_missing_is_named(tmp_path, where, said):
    values = json.loads(json.dumps(of_much().to_json()))
    place = values
    for step in where[:-1]:
        place = place[step]
    del place[where[-1]]
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match=f"^{said}$") as caught:
        Manifest.load(tmp_path / "a.json")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("text", "said"), [
    ("words", "not JSON"), ("[]", "no manifest of format 1"), ('{"format": 2}', "no manifest of format 1"),
    (json.dumps({**of_nothing().to_json(), "cleaning": "much"}), "cannot be read: cleaning"),
])  # fmt: skip
def test_what_is_no_manifest(tmp_path, text, said):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        Manifest.load(tmp_path / "a.json")


def test_what_an_older_version_did_not_write_is_empty(tmp_path):
    values = of_much().to_json()
    for key in ("export", "weights", "undone", "refused", "rewrite_warnings", "made_from", "reproducible", "proof"):
        del values[key]
    (tmp_path / "a.json").write_text(json.dumps(values))
    manifest = Manifest.load(tmp_path / "a.json")
    assert (manifest.undone, manifest.weights, manifest.made_from) == ((), None, None)
