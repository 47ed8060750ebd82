"""The Python API: the commands as functions, quick to import, whatever was imported before."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import trtnorm_cli
from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import CompareSettings, Manifest, TrtnormError, compare, export, inspect, rewrite
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model import shelf

HEAVY = ("numpy", "onnx", "onnxruntime", "onnx_graphsurgeon", "torch", "tensorrt", "tensorrt_rtx", "pydantic", "rich", "yaml")
GRAPH = (
    "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) [bn1] y = BatchNormalization(c, gamma, beta, mu, var) }"
)
DOCUMENT = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(parse(GRAPH, {"w": random(4, 2, 3, 3), **batchnorm(4)}), tmp_path / "model.onnx")
    (tmp_path / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    return tmp_path


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_importing_it_imports_nothing_heavy():
    done = python(
        "import sys\nfrom trtnorm_cli import build, rewrite, export, compare, inspect, diff\n"
        f"sys.exit(', '.join(name for name in {HEAVY!r} if name in sys.modules) or 0)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("before", ["pass", "import trtnorm_cli.compare.metrics_of_nothing", "import trtnorm_cli.rewrite.rule",
                                    "import trtnorm_cli.export.options, trtnorm_cli.compare.result"])  # fmt: skip
def test_a_folder_with_the_name_of_a_function_is_that_function(before):
    """Whichever of the two is imported first, and as often as it is asked for."""
    done = python(
        f"try:\n    {before}\nexcept ImportError:\n    pass\n"
        "import trtnorm_cli\nfrom trtnorm_cli import build, rewrite, export, compare, inspect, diff\n"
        "import trtnorm_cli.compare.result as result, trtnorm_cli.rewrite.rule as rule\n"
        "from trtnorm_cli import api\n"
        "assert all(map(callable, (build, diff, rewrite, export, compare, inspect, trtnorm_cli.compare)))\n"
        "api.compare = api.rewrite = api.export = lambda *a, **k: (a, k)\n"
        "assert compare(1, 2, profile=3) == trtnorm_cli.compare(1, 2, profile=3) == ((1, 2), {'profile': 3})\n"
        "assert rewrite(1) == export(1) == ((1,), {})\n"
        "assert result.Comparison and rule.Rule\n"
    )
    assert done.returncode == 0, done.stderr


def test_what_there_is_not():
    with pytest.raises(AttributeError, match="has no attribute 'bulid'"):
        _ = trtnorm_cli.bulid
    with pytest.raises(ImportError):
        from trtnorm_cli import nothing  # noqa: F401


@pytest.mark.rtx
def test_the_example_of_the_document(work, capsys):
    pytest.importorskip("tensorrt_rtx")
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, "docs/python.md", "exec"), {"__name__": "example"})
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("fold-batchnorm-conv bn1 ")
    assert lines[1] == "passed"
    assert re.fullmatch(r"\d+ kernels, \d+ bytes, tensorrt-rtx", lines[2])
    assert lines[3] == "['bn1']"
    assert len(lines) == 4
    assert shown.err == ""
    assert Manifest.load(Path("model.engine.json")).engine.bytes == Path("model.engine").stat().st_size
    assert Path("fixed.onnx").is_file()


@pytest.mark.rtx
def test_an_engine_that_is_up_to_date_is_not_built_again(work, monkeypatch):
    pytest.importorskip("tensorrt_rtx")
    first = trtnorm_cli.build("model.onnx", profile="cfg.yaml")
    events = []
    again = trtnorm_cli.build("model.onnx", profile="cfg.yaml", on_event=events.append)
    assert again == first
    assert {event["stage"] for event in events} == {"load", "sizes"}


def test_nothing_is_written_without_a_name(work, capsys):
    done = rewrite("model.onnx")
    assert [change.rule for change in done.rewriting.changes] == ["fold-batchnorm-conv"]
    assert done.written == ()
    assert sorted(path.name for path in work.iterdir()) == ["cfg.yaml", "model.onnx"]
    assert run(["rewrite", "model.onnx", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": 1, **json.loads(json.dumps(done.to_json()))}


def test_a_comparison_says_what_is_different(work):
    other = parse(GRAPH, {"w": 2 * random(4, 2, 3, 3), **batchnorm(4)})
    saved(other, work / "other.onnx")
    comparison = compare(Path("model.onnx"), Path("other.onnx"), profile="cfg.yaml", settings=CompareSettings(find_blame=False))
    assert comparison.state == "failed"


def test_inspecting_gives_what_the_command_prints(work, capsys):
    assert run(["inspect", "model.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": 1, **json.loads(json.dumps(inspect("model.onnx").to_json()))}


@pytest.mark.parametrize(("call", "code"), [
    (lambda: rewrite("nothing.onnx"), 3),
    (lambda: compare("model.engine"), 2),
    (lambda: inspect("model.onnx", output="network.onnx"), 2),
    (lambda: export("model.onnx"), 2),
    (lambda: export("model.py:f", update_profile=True), 2),
])  # fmt: skip
def test_errors_are_those_of_the_commands(work, call, code):
    with pytest.raises(TrtnormError) as caught:
        call()
    assert caught.value.exit_code == code


@pytest.mark.parametrize("output", [None, "fixed.onnx"])
def test_the_rewritten_model_holds_its_weights(work, output):
    """Those that changed and those that did not, also where they are large enough to be left in files."""
    changed = "c = Conv(x, w) d = BatchNormalization(c, gamma, beta, mu, var)"
    graph = f"g (float[N, 64, 7, 7] x) => (float[N, 512, 7, 7] y) {{ {changed} y = Conv(d, kept) }}"
    weights = {"w": random(512, 64, 1, 1), "kept": random(512, 512, 1, 1), **batchnorm(512)}
    saved(parse(graph, weights), work / "large.onnx")
    done = rewrite("large.onnx", output)
    (work / "large.onnx").unlink()
    held = {tensor.name: len(tensor.raw_data) for tensor in done.rewriting.model.graph.initializer}
    assert len(done.rewriting.changes) == 1
    assert held["kept"] == weights["kept"].nbytes
    assert weights["w"].nbytes in held.values()
    onnx.checker.check_model(done.rewriting.model, full_check=True)
    assert len(done.to_json()["source"]["sha256"]) == 64


def test_a_file_that_changes_during_the_work_is_told(work):
    def touch(proof):
        saved(parse(GRAPH, {"w": 2 * random(4, 2, 3, 3), **batchnorm(4)}), work / "model.onnx")

    with pytest.raises(TrtnormError, match="changed while it was worked on"):
        rewrite("model.onnx", "fixed.onnx", on_proof=touch)
    assert not (work / "fixed.onnx").exists()


@pytest.mark.parametrize(("precision", "of_result"), [(None, True), ("fp16", False)], ids=["as written", "another precision"])
def test_large_new_weights_are_kept_beside_the_result(work, monkeypatch, precision, of_result):
    """What is rewritten before it is put into another precision is not the result."""
    places, own = [], shelf._nameless_file
    monkeypatch.setattr(shelf, "_nameless_file", lambda: places.append(shelf._PLACE.get()) or own())
    weights = {"w": random(256, 256, 1, 1), **batchnorm(256)}
    text = "c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var)"
    saved(parse(f"g (float[1, 256, 8, 8] x) => (float[1, 256, 8, 8] y) {{ {text} }}", weights), work / "wide.onnx")
    (work / "out").mkdir()
    rewrite("wide.onnx", "out/wide.onnx", precision=precision)
    assert len(places) >= (1 if precision is None else 2)
    assert set(places) == {(work.absolute() / "out", of_result)}
