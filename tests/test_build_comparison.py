"""The comparison at the end of a build: what cannot be compared is said, and is no reason to throw an engine away."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.compare import session
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.result import CandidateReport, Comparison
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed

PROFILE = "optimization_profiles:\n  - inputs:\n      x: {min: [1, 2, 9, 9], opt: [2, 2, 9, 9], max: [4, 2, 9, 9]}\n"
PLAIN = "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) y = Relu(c) }"
NORMALIZED = (
    "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
)
NAN = "g (float[N, 2, 9, 9] x) => (float[N, 2, 9, 9] y) { a = Abs(x) b = Neg(a) y = Log(b) }"

pytestmark = pytest.mark.rtx


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("tensorrt_rtx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cfg.yaml").write_text(PROFILE)
    saved(parse(PLAIN, {"w": random(4, 2, 3, 3)}), tmp_path / "plain.onnx")
    saved(parse(NORMALIZED, {"w": random(4, 2, 3, 3), **batchnorm(4)}), tmp_path / "normalized.onnx")
    saved(parse(NAN), tmp_path / "nan.onnx")
    return tmp_path


def built(model: str, *options: str) -> tuple[int, dict]:
    code = run(["build", model, "-p", "cfg.yaml", "-o", "m.engine", *options])
    manifest = Path("m.engine.json")
    return code, json.loads(manifest.read_text()) if manifest.exists() else {}


def test_a_model_that_was_not_rewritten_is_not_compared_with_itself(work):
    code, manifest = built("plain.onnx")
    assert code == 0
    assert [c["label"] for c in manifest["comparison"]["candidates"]] == ["network:rewriting"]
    code, manifest = built("normalized.onnx")
    assert [c["label"] for c in manifest["comparison"]["candidates"]] == ["rewriting", "network:rewriting"]
    assert manifest["comparison"]["state"] == "passed"


def test_nan_alone_is_no_comparison_and_the_engine_is_kept(work, capsys):
    code, manifest = built("nan.onnx")
    assert code == 0
    assert manifest["comparison"]["state"] == "not compared"
    assert "WARNING: NOT COMPARED: network:rewriting: y at default min: nothing in it is finite" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_comparison_can_be_required(work, capsys):
    code, manifest = built("nan.onnx", "--require-compare")
    assert (code, manifest) == (5, {})
    assert "could not be compared" in capsys.readouterr().err
    assert built("plain.onnx", "--require-compare")[0] == 0


def test_an_engine_that_was_not_compared_is_up_to_date_unless_that_is_required(work, capsys):
    assert built("nan.onnx")[0] == 0
    capsys.readouterr()
    assert built("nan.onnx")[0] == 0
    assert "is up to date" in capsys.readouterr().out
    assert built("nan.onnx", "--require-compare")[0] == 5


def test_two_wishes_that_contradict_each_other_are_refused(work):
    assert built("plain.onnx", "--require-compare", "--no-compare")[0] == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [(ValueError("cannot reshape"), "please report it"), (MemoryError(), "the comparison needs more memory than")],
    ids=["defect", "memory"],
)
def test_a_comparison_that_breaks_costs_no_engine(work, monkeypatch, capsys, error, said):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr(session, "compare_rewriting", broken)
    code, manifest = built("plain.onnx")
    assert code == 0
    assert said in manifest["comparison"]["not_compared"][0]


def test_an_interrupt_that_comes_while_modules_are_loaded_for_the_comparison_is_no_defect_of_it(work, monkeypatch):
    """Python before 3.12 makes another error of one that comes while a class gets its attributes."""

    def interrupted(*arguments, **options):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    monkeypatch.setattr(session, "compare_rewriting", interrupted)
    assert built("plain.onnx") == (130, {})


@pytest.mark.parametrize(("given", "seconds"), [((), 300.0), (("--timeout", "77"), 77.0)], ids=["default", "given"])
def test_the_time_limit_of_a_build_bounds_the_runs_of_its_comparison(work, monkeypatch, given, seconds):
    limits, real = [], OrtRunner.begin

    def begin(self: OrtRunner, *arguments: object, **options: object) -> object:
        limits.append(self.timeout_s)
        return real(self, *arguments, **options)

    monkeypatch.setattr(OrtRunner, "begin", begin)
    assert built("plain.onnx", *given)[0] == 0
    assert set(limits) == {seconds}


def test_a_comparison_that_failed_still_throws_the_engine_away(work, monkeypatch):
    wrong = CandidateReport("network:rewriting", "network", error="another shape")
    monkeypatch.setattr(session, "compare_rewriting", lambda *a, **o: Comparison("m", candidates=[wrong]))
    assert built("plain.onnx") == (1, {})


def test_a_profile_named_random_is_compared_at_its_corners(work):
    """The label of drawn shapes was once what told them from the corners of a profile."""
    Path("cfg.yaml").write_text(PROFILE.replace("  - inputs", "  - name: random\n    inputs"))
    code, manifest = built("plain.onnx")
    assert code == 0
    assert manifest["comparison"]["at"] == ["random min", "random opt", "random max"]


def test_what_was_not_run_is_said(work, monkeypatch, capsys):
    monkeypatch.setattr("trtnorm_cli.compare.session._BUILD_RUNS_S", 1e-6)
    code, manifest = built("plain.onnx")
    assert code == 0
    assert manifest["comparison"]["at"] == ["default min"]
    assert [line.split(":")[0] for line in manifest["comparison"]["skipped"]] == ["default opt", "default max"]
    assert "not at default opt" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("seed", [0, 5])
def test_doubles_are_held_to_their_own_noise(work, seed):
    weights = {"w": random(4, 2, 3, 3, dtype=np.float64), **batchnorm(4, np.float64)}
    saved(parse(NORMALIZED.replace("float[", "double["), weights), work / "double.onnx")
    code, manifest = built("double.onnx", "--seed", str(seed))
    assert code == 0
    assert manifest["comparison"]["state"] == "passed"


def test_where_nothing_ran_the_build_says_so(work, capsys, monkeypatch):
    def dies(self: NativeRuns, *arguments: object) -> None:
        raise RunFailed("ONNX Runtime was killed", signal=9)

    monkeypatch.setattr(NativeRuns, "_waited", dies)
    code, manifest = built("plain.onnx", "--require-compare")
    assert (code, manifest["comparison"]["state"]) == (0, "passed")
    said = " ".join(capsys.readouterr().out.split())
    assert "does not run plain.onnx, its float64 evaluation stands for it: ONNX Runtime was killed" in said
