"""The plan of a batch: which jobs it comes to, and what is said of its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.matrix import jobs_of
from trtnorm_cli.batch.plan import parse_plan
from trtnorm_cli.errors import ProfileError

PLAN = """
models:
  net: net.onnx
  flow: {model: "model.py:flow", weights: flow.safetensors, precisions: [as-written], targets: [ada]}
profiles:
  server: server.yaml
  edge: {file: edge.yaml, settings: {builder: {optimization_level: 1, refit: true}}}
precisions: [as-written, fp16]
targets:
  ada: {backend: tensorrt-rtx, targets: [8.9]}
  a10: {backend: tensorrt, gpu: sm_86, resources: {A10: 1}}
timeout: 600
"""


def jobs(text: str) -> dict[str, Job]:
    return {job.name: job for job in jobs_of(parse_plan(text, "plans/fleet.yaml"))}


def refusal(text: str) -> ProfileError:
    with pytest.raises(ProfileError) as error:
        jobs(text)
    return error.value


def test_every_model_with_every_profile_precision_and_target():
    found = jobs(PLAN)
    net = [name for name in found if name.startswith("net")]
    assert len(net) == 2 * 2 * 2
    assert [name for name in found if name.startswith("flow")] == ["flow.server.as-written.ada", "flow.edge.as-written.ada"]
    job = found["net.edge.fp16.a10"]
    assert (job.backend, job.gpu, job.resources) == ("tensorrt", "sm_86", {"GPU_sm_86": 1.0, "A10": 1.0})
    assert job.how.timeout == 600
    assert Path(job.profile_path or "").name == "edge.yaml"
    assert found["flow.edge.as-written.ada"].settings == {
        "builder": {"optimization_level": 1, "refit": True, "targets": ["sm_89"]}
    }


def test_exceptions_as_in_the_matrix_of_a_ci():
    found = jobs(
        PLAN
        + "exclude: [{model: net, precision: fp16}, {target: a10, profile: edge}]\n"
        + "include: [{model: net, profile: edge, precision: bf16, target: a10}]\n"
        + "overrides:\n"
        + "  - {match: {model: 'n*'}, timeout: 5, settings: {builder: {optimization_level: 4}}}\n"
        + "  - {match: {profile: edge}, settings: {builder: {optimization_level: 3}}}\n"
    )
    assert [name for name in found if name.startswith("net")] == [
        "net.server.as-written.ada", "net.server.as-written.a10", "net.edge.as-written.ada", "net.edge.bf16.a10",
    ]  # fmt: skip
    assert found["net.server.as-written.ada"].settings["builder"]["optimization_level"] == 4
    assert found["net.edge.bf16.a10"].settings["builder"]["optimization_level"] == 3
    assert (found["net.edge.bf16.a10"].how.timeout, found["flow.edge.as-written.ada"].how.timeout) == (5, 600)


def test_without_lists_there_is_one_job_a_model():
    assert list(jobs("models: {net: net.onnx}")) == ["net"]
    job = jobs("models: {net: {model: net.onnx, profile: '{stem}.yaml'}}")["net"]
    assert Path(job.profile_path or "").name == "net.yaml"


def test_a_pattern_is_a_model_for_each_file(tmp_path):
    for name in ("a.onnx", "b.onnx", "deep/a.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    plan = parse_plan("models: {all: {model: '**/*.onnx', profile: '{stem}.yaml'}}", str(tmp_path / "p.yaml"))
    assert {job.name: Path(job.spec).relative_to(tmp_path).as_posix() for job in jobs_of(plan)} == {
        "a": "a.onnx", "b": "b.onnx", "deep-a": "deep/a.onnx",
    }  # fmt: skip
    with pytest.raises(ProfileError, match="no file fits the pattern"):
        jobs_of(parse_plan("models: {all: 'none*.onnx'}", str(tmp_path / "p.yaml")))


@pytest.mark.parametrize(("text", "words"), [
    ("", "the plan is empty"),
    ("- a", "expected a mapping"),
    ("modles: {a: b.onnx}\nmodels: {a: b.onnx}", "unknown key 'modles'; did you mean 'models'?"),
    ("models: {}", "models"),
    ("models: {a/b: x.onnx}", "'a/b' cannot be a name"),
    ("models: {a: {model: x.onnx, profil: y}}", "unknown key 'profil'; did you mean 'profile'?"),
    ("models: {a: {model: x.onnx, profile: y, profiles: [z]}}", "has a 'profile' of its own as well"),
    ("models: {a: {model: x.onnx, profiles: [sever]}}\nprofiles: {server: s.yaml}", "did you mean 'server'?"),
    ("models: {a: x.onnx}\nprecisions: [fp61]", "expected 'as-written', 'fp16', 'bf16' or 'fp32'"),
    ("models: {a: x.onnx}\ntargets: {t: {gpu: ada}}", "targets.t.gpu"),
    ("models: {a: x.onnx}\nexclude: [{}]", "names nothing, and would fit every job"),
    ("models: {a: x.onnx}\nexclude: [{model: b}]", "it fits no job"),
    ("models: {a: x.onnx}\nexclude: [{model: a}]", "all are excluded"),
    ("models: {a: x.onnx}\ninclude: [{model: b}]", "'b' is not among the plan's models"),
    ("models: {a: x.onnx}\noverrides: [{match: {model: b}, timeout: 5}]", "it fits no job"),
    ("models: {a.b: x.onnx, a: y.onnx}\nprofiles: {b.c: s.yaml, c: t.yaml}", "two jobs are called 'a.b.c'"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_place(text, words):
    error = refusal(text)
    told = f"{error.summary} {error.where} {error.hint}"
    assert words in told
    assert "fleet.yaml" in told
