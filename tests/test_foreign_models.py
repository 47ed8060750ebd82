"""Models that nobody here wrote: the list of them is sound, and what was found is read and written rightly."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
import yaml

from benchmarks.foreign_corpus import LIST, Source, corpus, of_package
from benchmarks.foreign_models import attempted, corners, verdict
from benchmarks.foreign_page import page
from tests.models import parse

DESCRIBED = yaml.safe_load(LIST.read_text(encoding="utf-8"))
RELU = "g (float[N, 3, H, 8] x, float[4] k) => (float[N, 3, H, 8] y) { y = Relu(x) }"


def found(name: str, raw: bool, ended: int, how: str = "", passed: bool = True) -> dict:
    run = {"seed": 0, "exit": ended, "seconds": 2.0, "error": "error: no | such"}
    if ended == 0:
        judged = {
            "state": "passed", "at": ["default min"], "skipped": [], "not_compared": [], "share": 0.125, "exact": 1e-9,
            "as_run": 2e-6, "network": "passed" if passed else "not compared",
        }  # fmt: skip
        run |= {"norms": {"BatchNormalization": 2}, "kernels": 7, "steps": {"build": 1.0}, "verdict": judged}
    result = {"ok": raw, "kernels": 9 if raw else None, "stage": "parse", "error": "" if raw else "false", "seconds": 1.0}
    return {
        "name": name, "package": "p", "version": "1", "file": "m", "how": how, "opset": 17, "profile": "none", "raw": result,
        "trtnorm": [run], "commit": "a1b2c3",
    }  # fmt: skip


def test_every_export_says_all_that_its_file_needs():
    assert len(DESCRIBED["exports"]) >= 40
    for name, entry in DESCRIBED["exports"].items():
        assert entry["exporter"] in ("dynamo", "torchscript"), name
        assert 11 <= entry["opset"] <= 21, name
        shapes = [how["shape"] if isinstance(how, dict) else how for how in entry["inputs"].values()]
        named = {size for shape in shapes for size in shape if isinstance(size, str)}
        assert named == set(entry.get("dims", {})), name


def test_every_package_has_a_version_and_no_refusal_is_explained_twice():
    assert all(entry["version"] for entry in DESCRIBED["packages"].values())
    assert len(set(DESCRIBED["refused"])) == len(DESCRIBED["refused"])


def test_files_of_a_wheel_are_named_by_what_tells_them_apart(tmp_path: Path):
    folder = tmp_path / "wheels" / "some-models"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "some_models-1.0-py3-none-any.whl", "w") as wheel:
        for member in ("a/net/model.onnx", "a/x/det.onnx", "a/y/det.onnx", "a/rec.onnx", "some_models-1.0.data/data/rec.onnx"):
            wheel.writestr(member, member)
    entry = {"version": "1.0", "profiles": {"x/det": {"dims": {"N": 1}}}}
    sources = list(of_package("some-models", entry, tmp_path))
    assert [source.name.split("/")[1] for source in sources] == ["net", "rec", "x-det", "y-det"]
    assert [source.name for source in sources if source.profile] == ["some-models/x-det"]


def test_a_profile_gives_raw_tensorrt_the_shapes_of_its_dynamic_inputs(tmp_path: Path):
    path = tmp_path / "p.yaml"
    path.write_text("dims: {N: {min: 1, opt: 2, max: 4}, H: 16}")
    source = Source("m", tmp_path / "m.onnx", "p", "1", "m", path)
    assert corners(source, parse(RELU)) == {"x": ((1, 3, 16, 8), (2, 3, 16, 8), (4, 3, 16, 8))}
    path.write_text("optimization_profiles: [{inputs: {x: [5, 3, 6, 8]}}]")
    assert corners(source, parse(RELU)) == {"x": ((5, 3, 6, 8),) * 3}


def test_a_verdict_names_the_largest_part_of_what_was_allowed():
    outputs = [
        {"exact": 1e-7, "native_distance": 3e-5, "share": 0.25},
        {"exact": None, "native_distance": 9e-5, "share": 0.5},
        {"exact": None, "native_distance": 1e-5, "share": None},
    ]
    candidate = {"state": "passed", "kind": "network", "outputs": outputs}
    comparison = {"state": "passed", "at": ["default min"], "skipped": ["default max"], "not_compared": []}
    read = verdict({**comparison, "candidates": [candidate]})
    assert read == {**comparison, "share": 0.5, "exact": 1e-7, "as_run": 9e-5, "network": "passed"}


def test_a_model_that_cannot_be_read_does_not_end_the_run(tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    record = attempted(Source("m", tmp_path / "m.onnx", "p", "1", "m"), SimpleNamespace(seeds=1, timeout=5))
    assert "DecodeError" in record["defect"]


def test_the_page_counts_and_explains():
    records = [
        found("p/both", True, 0), found("p/more", False, 0), found("p/less", True, 5), found("e", False, 5, "dynamo 18"),
        found("p/unknown", True, 0, passed=False),
    ]  # fmt: skip
    models = {record["name"]: record for record in records} | {"odd": {"name": "odd", "defect": "DecodeError"}}
    written = page({"versions": {"onnx": "1.0"}, "models": models})
    assert "| trtnorm builds | 3 | 0 | 3 |" in written
    assert "| of these compared and equal | 2 | 0 | 2 |" in written
    assert "| raw only | 1 | 0 | 1 |" in written
    assert "| trtnorm only | 1 | 0 | 1 |" in written
    assert "| p/less | 9 | 5: error: no \\| such |" in written
    assert "**not compared** at min" in written
    assert "equal at min; 0.12 of what is allowed; as run 2.0e-06" in written
    assert "trtnorm is that of commit a1b2c3 for 5 models." in written
    assert "Not tried: odd (DecodeError)." in written


def test_exports_that_failed_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    onnx.save(parse(RELU), tmp_path / "a.onnx")
    common = {"package": "timm", "version": "1", "member": "timm.create_model a", "exporter": "dynamo 18", "profile": None}
    lines = [{**common, "name": "a", "failed": None}, {**common, "name": "b", "failed": "RuntimeError: no"}]
    (tmp_path / "exports.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("benchmarks.foreign_corpus.LIST", tmp_path / "list.yaml")
    (tmp_path / "list.yaml").write_text("packages: {}")
    assert [source.name for source in corpus(tmp_path, tmp_path)] == ["a"]
