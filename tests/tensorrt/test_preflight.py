"""Builder settings against the backend: applied, explained with the line in the file, or noted; never dropped."""

from __future__ import annotations

import json
import sys

import onnx
import pytest

from tests.models import parse, random, saved
from tests.tensorrt.builds import built
from trtnorm_cli.cli import run
from trtnorm_cli.errors import ProfileError, UsageProblem
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.tensorrt import facts
from trtnorm_cli.tensorrt.facts import BackendFacts, ask_facts
from trtnorm_cli.tensorrt.preflight import builder_settings, require_settings, setting_problems, types_of

CONV = parse("g (float[2, 2, 7, 7] x) => (float[] y) { [conv] c = Conv(x, w) y = Relu(c) }", {"w": random(4, 2, 3, 3)})
RTX = BackendFacts("tensorrt-rtx", "1.4", ("targets", "tiling"), ("sm_75", "sm_80", "sm_86"), ())
FULL = BackendFacts("tensorrt", "10.3", ("hardware compatibility", "timing cache", "lean runtime"), (), ("GPU",))


def problems(text: str, backend: BackendFacts, model: onnx.ModelProto = CONV) -> list[tuple[str, str, str]]:
    settings = builder_settings(parse_profile(f"builder: {text}"))
    found = setting_problems(settings, backend, model)
    assert all(problem.path[0] == "builder" for problem in found)
    return [(".".join(str(part) for part in problem.path[1:]), problem.message, problem.hint or "") for problem in found]


@pytest.mark.parametrize(("text", "backend", "key", "message", "instead"), [
    ("{targets: [sm_86]}", FULL, "targets", "tensorrt 10.3 does not have targets", "hardware_compatibility: ampere_plus"),
    ("{tiling: full}", FULL, "tiling", "does not have tiling", "TensorRT 10.9 or newer"),
    ("{hardware_compatibility: same_compute_capability}", FULL, "hardware_compatibility",
     "does not have hardware_compatibility: same_compute_capability", "'ampere_plus' is what it has"),
    ("{hardware_compatibility: ampere_plus}", RTX, "hardware_compatibility", "does not have", "targets: [sm_86"),
    ("{version_compatible: true}", RTX, "version_compatible", "without the lean runtime", "exclude_lean_runtime: true"),
    ("{targets: [sm_90]}", RTX, "targets", "does not compile for sm_90", "it compiles for sm_75, sm_80, sm_86"),
])  # fmt: skip
def test_a_setting_that_the_backend_lacks_names_the_alternative(text, backend, key, message, instead):
    ((found_key, found, hint),) = problems(text, backend)
    assert found_key == key
    assert message in found
    assert instead in hint


@pytest.mark.parametrize(("text", "backend"), [
    ("{hardware_compatibility: ampere_plus, version_compatible: true, timing_cache: a}", FULL),
    ("{version_compatible: true, exclude_lean_runtime: true, targets: [sm_75, sm_86], tiling: fast, l2_limit: 1MiB}", RTX),
    ("{timing_cache: a.cache, refit: true}", RTX),
])  # fmt: skip
def test_what_the_backend_has_is_no_problem(text, backend):
    assert problems(text, backend) == []


BF16 = {
    "input": "g (bfloat16[2] x) => (bfloat16[] y) { y = Relu(x) }",
    "cast": "g (float[2] x) => (float[] y) { a = Cast <to=16> (x) b = Exp(a) y = Cast <to=1> (b) }",
    "constant": "g (float[2] x) => (float[] y) { k = Constant <value = bfloat16[1] {1}> () c = Cast <to=1> (k) y = Add(x, c) }",
}


@pytest.mark.parametrize("graph", BF16.values(), ids=BF16)
def test_bfloat16_needs_newer_gpus(graph):
    model = parse(graph)
    ((key, message, hint),) = problems("{targets: [sm_86, sm_75]}", RTX, model)
    assert (key, message) == ("targets.1", "the model uses bfloat16, which sm_75 does not have")
    assert "leave out compute capabilities below sm_80" in hint
    assert problems("{targets: [sm_80, sm_86]}", RTX, model) == []


def test_types_inside_branches_count():
    model = parse(
        "g (float[2] x, bool c) => (float[] y) { y = If (c) <then_branch = t () => (float[2] a) "
        "{ h = Cast <to=16> (x) a = Cast <to=1> (h) }, else_branch = e () => (float[2] b) { b = Neg(x) }> }"
    )
    assert types_of(model) == {"FLOAT", "BOOL", "BFLOAT16"}


@pytest.mark.parametrize(("settings", "asked"), [
    (None, []), ("{optimization_level: 3, workspace: 1GiB}", []), ("{tiling: fast}", ["tensorrt-rtx"]),
    ("{optimization_level: 3, targets: [sm_86]}", ["tensorrt-rtx"]),
])  # fmt: skip
def test_the_backend_is_asked_only_where_it_matters(monkeypatch, settings, asked):
    names = []
    monkeypatch.setattr("trtnorm_cli.tensorrt.preflight.ask_facts", lambda name: names.append(name) or RTX)
    require_settings(None if settings is None else parse_profile(f"builder: {settings}"), "tensorrt-rtx", CONV)
    assert names == asked


def test_the_line_is_named(monkeypatch):
    monkeypatch.setattr("trtnorm_cli.tensorrt.preflight.ask_facts", lambda name: RTX)
    profile = parse_profile(
        "builder:\n  tf32: true\n  hardware_compatibility: ampere_plus\n  targets: [sm_86, sm_90]\n", "c.yaml"
    )
    with pytest.raises(ProfileError) as caught:
        require_settings(profile, None, CONV)
    assert caught.value.exit_code == 2
    assert caught.value.where == "c.yaml:3: builder.hardware_compatibility"
    assert "c.yaml:4: builder.targets: tensorrt-rtx 1.4 does not compile for sm_90" in caught.value.summary


ANSWER = "import sys; from pathlib import Path; Path(sys.argv[1], 'result.json').write_text('{}')"


@pytest.mark.parametrize(("script", "reason"), [
    ("import os; os.abort()", "was ended by SIGABRT"), ("print('words')", "ended with exit code 0"),
    ("import time; time.sleep(60)", "gave no answer within 1 s"),
    (ANSWER.format('{"summary": "no TensorRT is installed", "where": null, "hint": "pip"}'), "no TensorRT is installed"),
])  # fmt: skip
def test_a_backend_that_dies_when_it_is_imported(monkeypatch, script, reason):
    monkeypatch.setattr(facts, "_TIMEOUT_S", 1)
    monkeypatch.setattr(facts, "WORKER", (sys.executable, "-c", script))
    with pytest.raises(UsageProblem, match=reason):
        ask_facts(None)


@pytest.mark.rtx
def test_the_real_facts():
    found = ask_facts("tensorrt-rtx")
    assert (found.name, "targets" in found.capabilities, "sm_86" in found.targets) == ("tensorrt-rtx", True, True)


@pytest.mark.rtx
@pytest.mark.parametrize(("settings", "compiled"), [
    ({}, (["sm_80"], True)), ({"targets": ["sm_86"]}, (["sm_86"], False)),
    ({"targets": ["sm_120", "sm_75", "sm_89"]}, (["sm_75", "sm_89", "sm_120"], False)),
])  # fmt: skip
def test_the_engine_is_compiled_for_the_targets(tmp_path, settings, compiled):
    result = built(CONV, tmp_path, settings=settings)
    assert result.ok
    assert (sorted(result.targets, key=lambda target: int(target[3:])), result.newer_too) == compiled


ACCEPTED = [
    {"optimization_level": 0}, {"tiling": "full", "l2_limit": 1 << 20}, {"max_aux_streams": 0}, {"tf32": False},
    {"sparse_weights": True}, {"weight_streaming": True}, {"version_compatible": True, "exclude_lean_runtime": True},
    {"refit": False, "refit_identical": False, "strip_plan": False}, {"profiling_verbosity": "none"},
]  # fmt: skip


@pytest.mark.rtx
@pytest.mark.parametrize("settings", ACCEPTED, ids=lambda settings: ",".join(settings))
def test_tensorrt_takes_the_setting(tmp_path, settings):
    result = built(CONV, tmp_path, settings=settings)
    assert result.ok, result.errors


@pytest.mark.rtx
@pytest.mark.parametrize(("settings", "message"), [
    ({"hardware_compatibility": "ampere_plus"}, "does not have hardware_compatibility"),
    ({"targets": ["sm_90"]}, "does not compile for sm_90"), ({"magic": 1}, "no builder setting named magic"),
    ({"exclude_lean_runtime": True}, "kEXCLUDE_LEAN_R"),  # TensorRT logs an error and goes on
])  # fmt: skip
def test_the_worker_refuses_too(tmp_path, settings, message):
    """A request may be written by hand, and the backend may be another one when a build is repeated."""
    result = built(CONV, tmp_path, settings=settings)
    assert (result.ok, result.stage) == (False, "settings")
    assert message in result.errors[0].text
    assert not (tmp_path / "out.engine").exists()


@pytest.mark.rtx
def test_a_timing_cache_is_ignored_with_a_note(tmp_path):
    result = built(CONV, tmp_path, settings={"timing_cache": str(tmp_path / "a.cache")})
    assert result.ok
    assert result.warnings == (
        "builder.timing_cache is ignored by tensorrt-rtx: this backend times nothing when it builds, so a timing cache has no "
        "effect; it is neither read nor written",
    )
    assert not (tmp_path / "a.cache").exists()


@pytest.mark.rtx
def test_two_targets_and_two_profiles_in_one_engine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(parse("g (float[N, 2, 7, 7] x) => (float[] y) { y = Conv(x, w) }", {"w": random(4, 2, 3, 3)}), tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(
        "optimization_profiles:\n  - name: small\n    dims: {N: {min: 1, opt: 2, max: 4}}\n"
        "  - name: large\n    dims: {N: {min: 8, opt: 16, max: 32}}\nbuilder:\n  targets: [sm_86, sm_120]\n"
    )
    assert run(["build", "m.onnx", "-p", "c.yaml", "-o", "m.engine", "--no-compare"]) == 0
    engine = json.loads((tmp_path / "m.engine.json").read_text())["engine"]
    assert (engine["targets"], engine["newer_too"]) == (["sm_86", "sm_120"], False)
    ranges = {binding["name"]: binding["profiles"] for binding in engine["bindings"]}
    assert [[entry[corner][0] for corner in ("min", "opt", "max")] for entry in ranges["x"]] == [[1, 2, 4], [8, 16, 32]]
    capsys.readouterr()
    assert run(["inspect", "m.engine"]) == 0
    shown = capsys.readouterr().out
    assert "sm_86, sm_120" in shown
    assert "profile small" in shown
    assert "profile large" in shown
