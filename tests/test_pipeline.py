"""From a model to an engine: what is written, what is kept, and what an end in the middle leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import trtnorm_cli
from tests.models import batchnorm, operators, parse, random, saved
from trtnorm_cli import pipeline
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.rules import RULES, fold_batchnorm_conv
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.manifest import Manifest

GRAPH = (
    "g (float[N, 2, 9, 9] x) => (float[N, 4, 5, 5] y) {{ [conv1] c = Conv(x, w) [bn1] n = BatchNormalization"
    "(c, gamma, beta, mu, var) [relu1] r = Relu(n) [conv2] y = {last} }}"
)
PROFILE = "optimization_profiles:\n  - inputs:\n      x: {min: [1, 2, 9, 9], opt: [2, 2, 9, 9], max: [4, 2, 9, 9]}\n"
rtx = pytest.mark.rtx


def model(last: str = "Conv(r, v)") -> onnx.ModelProto:
    weights = {"w": random(4, 2, 3, 3), "v": random(4, 4, 3, 3), **batchnorm(4)}
    return parse(GRAPH.format(last=last), weights)


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """The working directory, with a model that TensorRT takes, one that it refuses, and a profile."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "temp").mkdir()
    saved(model(), folder / "good.onnx")
    saved(model("Odd(r, v)"), folder / "odd.onnx")
    (folder / "cfg.yaml").write_text(PROFILE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    return folder


def left_in_temp(work: Path) -> list[str]:
    return sorted(path.name for path in (work.parent / "temp").iterdir())


def build(*arguments: str) -> int:
    return run(["build", *arguments, "--profile", "cfg.yaml"])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine with its manifest, as the command line leaves it."""
    pytest.importorskip("tensorrt_rtx")
    folder = tmp_path_factory.mktemp("engine")
    saved(model(), folder / "good.onnx")
    (folder / "cfg.yaml").write_text(PROFILE)
    done = subprocess.run(
        [sys.executable, "-m", "trtnorm_cli", "build", "good.onnx", "--profile", "cfg.yaml", "--json"],
        cwd=folder, capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "good.engine", done


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(trtnorm_cli.__file__).parents[1]), **more}


def manifest_of(path: Path) -> dict:
    return json.loads(path.with_name(path.name + ".json").read_text())


@rtx
def test_the_engine_takes_the_models_stem(engine):
    path, _ = engine
    assert sorted(p.name for p in path.parent.iterdir()) == ["cfg.yaml", "good.engine", "good.engine.json", "good.onnx"]


@rtx
def test_the_manifest_is_what_json_prints(engine):
    path, done = engine
    assert json.loads(done.stdout) == manifest_of(path)
    assert "trtnorm: building the engine …" in done.stderr
    assert "engine size" in done.stderr


@rtx
def test_the_manifest_says_what_is_in_the_engine(engine):
    path, _ = engine
    manifest = manifest_of(path)
    assert manifest["format"] == 1
    assert set(manifest["versions"]) == {"trtnorm", "python", "onnx", "onnxruntime", "backend", "tensorrt"}
    assert manifest["versions"]["backend"] == "tensorrt-rtx"
    assert manifest["source"] == {"file": "good.onnx", "sha256": sha256(path.parent / "good.onnx")}
    about = {"file": "good.engine", "sha256": sha256(path), "bytes": path.stat().st_size}
    assert {key: manifest["engine"][key] for key in about} == about
    assert (manifest["engine"]["targets"], manifest["engine"]["newer_too"]) == (["sm_80"], True)
    assert [(b["name"], b["dtype"]) for b in manifest["engine"]["bindings"]] == [("x", "FLOAT"), ("y", "FLOAT")]
    assert manifest["optimization_profiles"] == [
        {"name": "default", "inputs": {"x": {"min": [1, 2, 9, 9], "opt": [2, 2, 9, 9], "max": [4, 2, 9, 9]}}}
    ]
    assert manifest["profile"]["optimization_profiles"]
    network = manifest["network"]
    assert network["layers_by_type"] == {"CONVOLUTION": 2, "ACTIVATION": 1}
    assert [layer["name"] for layer in network["layers"]] == ["conv1", "relu1", "conv2"]
    assert sum(network["kernels_by_type"].values()) <= len(network["kernels"])
    assert network["inputs"][0] == {"name": "x", "dtype": "FLOAT", "shape": [-1, 2, 9, 9]}
    assert {"rewrite", "parse", "build"} <= manifest["seconds"].keys()


# What other programs read. Keys are added, and none is renamed or moved without a new format.
KEYS = {
    "": "format versions source export weights plugins rewritten engine profile optimization_profiles cleaning normalizations "
    "changes undone refused network rewrite_warnings warnings optimize comparison made_from reproducible proof seconds",
    "versions": "trtnorm python onnx onnxruntime backend tensorrt",
    "source": "file sha256",
    "rewritten": "sha256",
    "engine": "file sha256 bytes targets newer_too bindings",
    "engine.bindings": "name mode dtype shape location profiles",
    "optimization_profiles": "name inputs",
    "optimization_profiles.inputs.x": "min opt max",
    "normalizations": "nodes pieces composite",
    "changes": "rule node removed added because check warning changes_meaning compared_with_reference tensor optional refused",
    "changes.check": "max_abs max_rel tolerance float64_rel float64_tolerance seed shapes evaluated_with passed reason",
    "network": "inputs outputs layers layers_by_type kernels kernels_by_type",
    "network.inputs": "name dtype shape",
    "network.layers": "name type outputs weights",
    "network.kernels": "name type tactic inputs outputs onnx_nodes",
    "optimize": "policy chosen before more",
    "optimize.before": "kernels_by_type engine_bytes reason",
    "comparison": "passed state not_compared seed reference at inputs skipped candidates float64_evaluated_with notes seconds",
    "comparison.candidates": "passed state label kind outputs notes",
    "made_from": "file model weights plugins profile trtnorm packages backend",
    "made_from.backend": "name version devices",
    "proof": "notes memory",
    "seconds": "rewrite variants parse build compare",
}


@rtx
@pytest.mark.parametrize("place", KEYS)
def test_the_keys_of_the_manifest(engine, place):
    found = manifest_of(engine[0])
    for step in filter(None, place.split(".")):
        found = found[step]
        found = found[0] if isinstance(found, list) else found
    assert list(found) == KEYS[place].split()


@rtx
def test_a_manifest_is_read_as_it_was_written(engine):
    path = engine[0].with_name("good.engine.json")
    assert path.read_text() == json.dumps(Manifest.load(path).to_json(), indent=2) + "\n"


@rtx
def test_each_change_is_in_the_manifest_with_its_check(engine):
    (change,) = manifest_of(engine[0])["changes"]
    assert (change["rule"], change["node"]) == ("fold-batchnorm-conv", "bn1")
    assert change["removed"] == ["conv1", "bn1"]
    assert change["added"] == ["conv1"]
    check = change["check"]
    assert check["passed"] is True
    assert check["shapes"] == {"x": [1, 2, 9, 9]}
    assert 0 <= check["max_rel"] <= check["tolerance"]
    assert 0 <= check["float64_rel"] <= check["float64_tolerance"]


@rtx
def test_the_manifest_has_no_absolute_paths(engine):
    path, _ = engine
    text = path.with_name("good.engine.json").read_text()
    assert str(path.parent) not in text
    assert tempfile.gettempdir() not in text
    assert str(Path.home()) not in text


@rtx
def test_a_build_can_be_repeated_to_the_byte(engine, work):
    """All but the timings."""
    assert build("good.onnx", "-o", "good.engine") == 0
    first, second = manifest_of(engine[0]), manifest_of(work / "good.engine")
    for manifest in (first, second):
        assert manifest.pop("seconds")
        assert manifest["comparison"].pop("seconds")
    assert json.dumps(first) == json.dumps(second)
    assert engine[0].read_bytes() == (work / "good.engine").read_bytes()
    assert left_in_temp(work) == []


@rtx
def test_without_the_rule_there_is_a_scale_layer(work):
    (work / "cfg.yaml").write_text(PROFILE + f"rules: {{skip: [{', '.join(rule.name for rule in RULES)}]}}\n")
    assert build("good.onnx") == 0
    manifest = manifest_of(work / "good.engine")
    assert manifest["changes"] == []
    assert manifest["network"]["layers_by_type"]["SCALE"] == 1


@rtx
def test_a_static_model_needs_no_profile(work, capsys):
    static = model()
    for value in (*static.graph.input, *static.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 3
    saved(static, work / "static.onnx")
    assert run(["build", "static.onnx"]) == 0
    manifest = manifest_of(work / "static.engine")
    assert manifest["profile"] is None
    assert manifest["network"]["inputs"][0]["shape"] == [3, 2, 9, 9]
    shown = capsys.readouterr()
    assert "building the engine" in shown.err
    for row in (
        r"rewritten +1 fold-batchnorm-conv", r"check error +at most \d\.\de-\d\d of the largest value \(bn1\)",
        r"network layers +2 CONVOLUTION, 1 ACTIVATION", r"kernels +\d+: \d", r"profile default +x 3x2x9x9 / 3x2x9x9 / 3x2x9x9",
        r"engine size +\d+\.\d KiB", r"backend +tensorrt-rtx \d", r"time +rewrite \d", r"engine +static\.engine",
        r"manifest +static\.engine\.json",
    ):  # fmt: skip
        assert re.search(f"^{row}", shown.out, re.MULTILINE), row


@rtx
def test_inspecting_an_engine(engine, capsys):
    path, _ = engine
    assert run(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "built from good.onnx" in shown
    assert "1 fold-batchnorm-conv" in shown
    assert "warning" not in shown
    assert run(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["manifest"] == manifest_of(path)
    assert found["engine_matches_manifest"] is True
    no_gpu = "an engine can only be loaded on a machine with an NVIDIA GPU" in (found["inspector"].get("reason") or "")
    assert found["inspector"]["available"] != no_gpu


@rtx
def test_an_engine_that_is_not_the_manifests(engine, work, capsys):
    for name in ("good.engine", "good.engine.json"):
        (work / name).write_bytes((engine[0].parent / name).read_bytes())
    with (work / "good.engine").open("ab") as stream:
        stream.write(b"x")
    assert run(["inspect", "good.engine"]) == 0
    assert "warning: the engine's bytes are not those that the manifest describes" in capsys.readouterr().out


@rtx
def test_a_manifest_that_lacks_something_is_no_defect(engine, work, capsys, monkeypatch):
    """It was written by another version: shown as far as it goes, or refused."""
    monkeypatch.setattr("trtnorm_cli.tensorrt.engine_file._inspector", lambda *_: {"available": False, "reason": "not asked"})
    (work / "old.engine").write_bytes(engine[0].read_bytes())
    whole = manifest_of(engine[0])
    codes = {}
    for key in whole:
        (work / "old.engine.json").write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        codes[key] = run(["inspect", "old.engine"])
    assert set(codes.values()) == {0, 3}, codes
    assert {key for key, code in codes.items() if code == 3} == {
        "format", "versions", "source", "engine", "optimization_profiles", "cleaning", "normalizations", "changes", "network",
        "warnings", "optimize", "seconds",
    }  # fmt: skip


@rtx
def test_a_refusal_keeps_an_earlier_engine_and_the_evidence(work, capsys):
    (work / "out.engine").write_text("earlier")
    (work / "out.engine.json").write_text("earlier too")
    assert build("odd.onnx", "-o", "out.engine") == 5
    shown = capsys.readouterr().err
    assert "node conv2 (Odd)" in shown
    assert "Plugin not found" in shown
    assert "decompose it into standard ONNX operators" in shown
    assert (work / "out.engine").read_text() == "earlier"
    assert (work / "out.engine.json").read_text() == "earlier too"
    assert [p.name for p in work.iterdir() if p.name.startswith(".")] == []
    (kept,) = left_in_temp(work)
    assert str(work.parent / "temp" / kept / "build.log") in shown
    files = {path.name for path in (work.parent / "temp" / kept).iterdir()}
    assert {"request.json", "fixed.onnx", "build.log", "result.json"} <= files


def fake(monkeypatch, body: str) -> None:
    prelude = "import os, signal, sys, time; from pathlib import Path; folder = Path(sys.argv[1]); "
    monkeypatch.setattr(pipeline, "launch", partial(launch, worker=(sys.executable, "-c", prelude + body)))
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.require_backend", lambda name: None)


@pytest.mark.parametrize(("body", "arguments", "words"), [
    ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", (), "the build process was ended by SIGKILL"),
    ("os.abort()", (), "the build process was ended by SIGABRT"),
    ("time.sleep(60)", ("--timeout", "0.5"), "the build took longer than 0.5 s and was stopped"),
    ("held = b'x' * (300 << 20); time.sleep(60)", ("--memory", "200MiB"), "more than 200 MiB, and was stopped"),
    ("sys.exit(0)", (), "without a result"),
])  # fmt: skip
def test_a_builder_that_dies_keeps_an_earlier_engine_and_the_evidence(work, capsys, monkeypatch, body, arguments, words):
    fake(monkeypatch, body)
    (work / "out.engine").write_text("earlier")
    assert build("good.onnx", "-o", "out.engine", *arguments) == 6
    shown = capsys.readouterr().err
    assert words in shown
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()
    assert [p.name for p in work.iterdir() if p.name.startswith(".")] == []
    (kept,) = left_in_temp(work)
    assert f"work folder {work.parent / 'temp' / kept}" in shown


FULL_DISK = (
    "import resource; from trtnorm_cli.tensorrt.child import worker; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2); "
    "worker.main()"
)


@rtx
def test_a_full_disk_keeps_an_earlier_engine(work, capsys, monkeypatch):
    fake(monkeypatch, FULL_DISK)
    (work / "out.engine").write_text("earlier")
    assert build("good.onnx", "-o", "out.engine") == 6
    assert "the engine cannot be written: File too large" in capsys.readouterr().err
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()
    assert [p.name for p in work.iterdir() if p.name.startswith(".")] == []


@rtx
def test_a_disk_that_is_full_at_the_very_end(work, capsys, monkeypatch):
    (work / "out.engine").write_text("earlier")
    real = Path.write_text

    def full(self, *arguments, **more):
        if self.name == "manifest":
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **more)

    monkeypatch.setattr(Path, "write_text", full)
    assert build("good.onnx", "-o", "out.engine", "--no-compare") == 2
    assert "the engine cannot be written: No space left on device" in capsys.readouterr().err
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()


def test_no_folder_to_work_in(work, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(work / "gone"))
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.require_backend", lambda name: None)
    assert build("good.onnx") == 2
    assert "no folder can be made to work in" in capsys.readouterr().err


@rtx
def test_the_command_that_repeats_a_build_works(work, capsys, monkeypatch):
    """Although the place where the engine was to be written is gone by then."""
    fake(monkeypatch, "os.abort()")
    assert build("good.onnx") == 6
    command = next(line for line in capsys.readouterr().err.splitlines() if "child.worker" in line).partition("hand: ")[2]
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, cwd="/", env=environment())
    assert done.returncode == 0, done.stderr
    (kept,) = left_in_temp(work)
    assert (work.parent / "temp" / kept / "good.engine").stat().st_size > 1000


def test_a_half_written_engine_never_carries_the_final_name(work, monkeypatch):
    fake(monkeypatch, "import json; e = Path(json.loads((folder / 'request.json').read_text())['engine']); "
         "e.write_bytes(b'half'); assert e.parent.parent == Path.cwd(); os.abort()")  # fmt: skip
    assert build("good.onnx") == 6
    assert not list(work.glob("*.engine*"))
    assert [p.name for p in work.iterdir() if p.name.startswith(".")] == []


def wrong_folding(monkeypatch) -> None:
    right = fold_batchnorm_conv.fold
    monkeypatch.setattr(fold_batchnorm_conv, "fold", lambda m: (right(m)[0], -right(m)[1]))


def test_a_change_that_is_needed_and_fails_its_check_stops_the_build(work, capsys, monkeypatch):
    """TensorRT would compute half-precision data in another way, so the model cannot be left as it is."""
    wrong_folding(monkeypatch)
    half = parse(GRAPH.format(last="Conv(r, v)").replace("float[", "float16["), {
        "w": random(4, 2, 3, 3, dtype=np.float16), "v": random(4, 4, 3, 3, dtype=np.float16), **batchnorm(4, np.float16)
    })  # fmt: skip
    saved(half, work / "good.onnx")
    (work / "cfg.yaml").write_text(PROFILE + "rules: {skip: [batchnorm-to-scale-shift, fold-batchnorm-upstream]}\n")
    assert build("good.onnx") == 4
    shown = capsys.readouterr().err
    assert "fold-batchnorm-conv at bn1: in float64 the outputs differ by" in shown
    assert "skip: [fold-batchnorm-conv]" in shown
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml"]) == 4
    assert sorted(p.name for p in work.iterdir()) == ["cfg.yaml", "good.onnx", "odd.onnx"]
    assert left_in_temp(work) == []


@rtx
@pytest.mark.parametrize("breaks", ["check", "precondition"])
def test_an_optional_change_that_fails_is_undone_and_the_build_goes_on(work, capsys, monkeypatch, breaks):
    if breaks == "check":
        wrong_folding(monkeypatch)
    else:
        monkeypatch.setattr(fold_batchnorm_conv, "fold", lambda m: [][0])
    assert build("good.onnx") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("please report this") == 1
    wanted = {
        "check": "fold-batchnorm-conv at bn1: in float64 the outputs differ by",
        "precondition": "fold-batchnorm-conv at bn1: IndexError",
    }
    assert wanted[breaks] in shown
    manifest = manifest_of(work / "good.engine")
    assert [(undone["rule"], undone["node"]) for undone in manifest["undone"]] == [("fold-batchnorm-conv", "bn1")]
    assert [change["rule"] for change in manifest["changes"]] == ["fold-batchnorm-upstream"]


@rtx
def test_rewrite_and_compare_undo_as_a_build_does(work, capsys, monkeypatch):
    wrong_folding(monkeypatch)
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--json"]) == 0
    shown = capsys.readouterr()
    assert [undone["rule"] for undone in json.loads(shown.out)["undone"]] == ["fold-batchnorm-conv"]
    assert "please report this" in shown.err
    assert run(["compare", "good.onnx", "--profile", "cfg.yaml"]) == 0


def test_an_invalid_result_is_not_written(work, capsys, monkeypatch):
    """The numbers are right, and the ONNX checker is asked all the same."""
    close = Surgery.close

    def spoilt(self):
        result = close(self)
        result.graph.node[0].attribute.add(name="nonsense", type=2, i=1)
        return result

    monkeypatch.setattr(Surgery, "close", spoilt)
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx"]) == 4
    assert "the rewritten model is not valid ONNX, so nothing was written" in capsys.readouterr().err
    assert not (work / "fixed.onnx").exists()


def test_rewriting_alone(work, capsys):
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--explain"]) == 0
    assert operators(onnx.load("fixed.onnx")) == ["Conv", "Relu", "Conv"]
    shown = capsys.readouterr().out
    assert "fold-batchnorm-conv" in shown
    assert "wrote fixed.onnx" in shown
    assert left_in_temp(work) == []
    assert run(["rewrite", "fixed.onnx", "-o", "again.onnx"]) == 0
    assert "no rule was applied" in capsys.readouterr().out
    assert (work / "again.onnx").read_bytes() == (work / "fixed.onnx").read_bytes()


def test_a_dry_run_writes_nothing(work, capsys):
    before = sorted(p.name for p in work.iterdir())
    assert run(["rewrite", "good.onnx", "--dry-run", "-o", "fixed.onnx", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [change["rule"] for change in record["changes"]] == ["fold-batchnorm-conv"]
    assert record["written"] == []
    assert sorted(p.name for p in work.iterdir()) == before


def test_no_backend_is_one_clear_error(work, capsys, monkeypatch):
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.installed", lambda: ())
    assert build("good.onnx") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: no TensorRT is installed\n")
    assert "pip install 'trtnorm[tensorrt]'" in shown
    assert "pip install 'trtnorm[rtx]'" in shown
    assert not list(work.glob("*.engine*"))


INTERRUPTED = """
import signal, sys, threading, time, os
import trtnorm_cli.pipeline as pipeline
from trtnorm_cli.cli import main
where, arguments = sys.argv[1], sys.argv[2:]
if where == "rewrite":
    import trtnorm_cli.rewrite.prepare as module, trtnorm_cli.rewrite.rewriting as rewriting
    real = rewriting.driver.apply
    def apply(*a, **k):
        os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
    rewriting.driver.apply = apply
else:
    from functools import partial
    from pathlib import Path
    from trtnorm_cli.tensorrt.launch import launch
    code = "import sys, time; from pathlib import Path; Path(sys.argv[1], 'ready').touch(); time.sleep(60)"
    def stop(request, folder, on_event, timeout_s, **more):
        def watch():
            while not Path(folder, "ready").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=watch, daemon=True).start()
        return launch(request, folder, on_event, timeout_s, (sys.executable, "-c", code))
    pipeline.launch = stop
import trtnorm_cli.tensorrt.backend as backend
backend.require_backend = lambda name: None
main(arguments)
"""


@pytest.mark.parametrize("where", ["rewrite", "build"])
def test_an_interrupt_leaves_nothing_behind(work, where):
    (work / "out.engine").write_text("earlier")
    before = sorted(p.name for p in work.iterdir())
    command = [sys.executable, "-c", INTERRUPTED, where, "build", "good.onnx", "--profile", "cfg.yaml", "-o", "out.engine"]
    env = environment(TMPDIR=str(work.parent / "temp"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().endswith("interrupted")
    assert sorted(p.name for p in work.iterdir()) == before
    assert (work / "out.engine").read_text() == "earlier"
    assert left_in_temp(work) == []


def deep(work: Path) -> None:
    """``deep.onnx``, which takes TensorRT seconds."""
    operators = [("Relu", "Sigmoid", "Tanh", "Abs")[n % 4] for n in range(600)]
    body = " ".join(f"t{n + 1} = {operator}(t{n})" for n, operator in enumerate(operators))
    saved(parse(f"g (float[2, 4] t0) => (float[2, 4] t600) {{ {body} }}"), work / "deep.onnx")


@rtx
@pytest.mark.parametrize("stage", ["rewriting and checking", "building the engine", "comparing"])
def test_an_interrupt_ends_it_within_a_second(work, stage):
    """Also while TensorRT, which does not look for signals, is at work."""
    deep(work)
    before = sorted(p.name for p in work.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "trtnorm_cli", "build", "deep.onnx"], env=environment(TMPDIR=str(work.parent / "temp")),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(stage in line for line in process.stderr)
    time.sleep(0.2)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    shown = process.stderr.read()
    assert process.wait(timeout=30) == 130, shown
    assert time.monotonic() - start < 1
    assert shown.endswith("interrupted\n")
    assert sorted(p.name for p in work.iterdir()) == before
    assert left_in_temp(work) == []


@rtx
@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.6, 0.9, 1.2])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ending_it_at_any_time_leaves_nothing_behind(work, delay, end):
    """``delay`` after it has begun to say what it does; it has much more to do than that takes."""
    deep(work)
    before = sorted(p.name for p in work.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "trtnorm_cli", "build", "deep.onnx"], env=environment(TMPDIR=str(work.parent / "temp")),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(line.startswith("trtnorm: ") for line in process.stderr)
    time.sleep(delay)
    start = time.monotonic()
    # A terminal sends Ctrl-C to the whole group; a service manager asks the process alone.
    (os.killpg if end == signal.SIGINT else os.kill)(process.pid, end)
    _, shown = process.communicate(timeout=30)
    assert time.monotonic() - start < 3
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert sorted(p.name for p in work.iterdir()) == before
    assert left_in_temp(work) == []
