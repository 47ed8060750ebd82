"""The smallest part of a model that fails in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random, saved
from trtnorm_cli import build_job
from trtnorm_cli.cli import run
from trtnorm_cli.errors import BuilderDied, UsageProblem
from trtnorm_cli.tensorrt.isolate import BuildFailure, Isolation, death_of, failure_of
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildResult, TensorRTMessage

SAFE = ("Relu", "Sigmoid", "Tanh", "Abs")
BAD = BuildFailure("build: bad")


def chain(prefix: str, count: int, first: str, last: str) -> str:
    names = [first, *(f"{prefix}{n}" for n in range(count - 1)), last]
    return " ".join(f"[{prefix}_{n}] {names[n + 1]} = {SAFE[n % 4]}({names[n]})" for n in range(count))


def model(middle: str = "[odd] e = Softsign(d)", shape: str = "2, 4") -> onnx.ModelProto:
    graph = f"g (float[{shape}] x) => (float[] y) {{ {chain('a', 20, 'x', 'd')} {middle} {chain('b', 20, 'e', 'y')} }}"
    return parse(graph, {"w": random(4), "s": np.array([-1, 8])})


class Builder:
    """Fails where a part has all of ``operators``."""

    def __init__(self, *wanted: str, dies: bool = False) -> None:
        self.wanted, self.dies, self.parts = set(wanted), dies, []

    def __call__(self, part: onnx.ModelProto, profiles) -> BuildResult:
        onnx.checker.check_model(part)
        self.parts.append((operators(part), profiles))
        if not self.wanted <= set(operators(part)):
            return BuildResult(ok=True, stage="done")
        if self.dies:
            raise BuilderDied("the build process was ended by SIGSEGV")
        return BuildResult(ok=False, stage="build", errors=(TensorRTMessage("bad"),))


def search(made: onnx.ModelProto, builder: Builder, named=(), failure=BAD, profiles=(), **more):
    return Isolation(made, profiles, builder, failure, **more).search(named)


def test_one_node_in_a_chain():
    builder = Builder("Softsign")
    found = search(model(), builder)
    assert operators(found.model) == ["Softsign"]
    assert (found.nodes, found.of) == (1, 41)
    assert found.trials == len(builder.parts) < 20


def test_a_named_node_is_tried_first():
    builder = Builder("Softsign")
    assert search(model(), builder, ["odd"]).trials == 1


def test_a_named_node_that_needs_what_leads_to_it():
    found = search(model("[l] k = Elu(d) [m] f = Relu(k) [odd] e = Softsign(f)"), Builder("Elu", "Softsign"), ["odd"])
    assert operators(found.model) == ["Elu", "Softsign"], "what lies between is no part of it"


def test_two_nodes_far_apart():
    made = model("[one] e = Softsign(d)")
    made.graph.node[0].op_type = "Elu"
    found = search(made, Builder("Elu", "Softsign"))
    assert sorted(operators(found.model)) == ["Elu", "Softsign"]


def test_a_crash():
    failure = death_of(BuilderDied("the build process was ended by SIGSEGV"))
    found = search(model(), Builder("Softsign", dies=True), failure=failure)
    assert operators(found.model) == ["Softsign"]


def test_another_failure_does_not_count():
    """The part dies, the model was refused."""
    assert search(model(), Builder("Softsign", dies=True)) is None


def test_a_failure_that_does_not_come_again():
    builder = Builder("Nothing")
    assert search(model(), builder, ["odd"]) is None
    assert len(builder.parts) == 7


def test_the_trials_are_bounded_and_heard_of():
    heard = []
    found = search(model(), Builder("Softsign"), max_trials=5, on_trial=lambda *trial: heard.append(trial))
    assert "Softsign" in operators(found.model)
    assert found.trials == 5
    assert [number for number, _, _ in heard] == [1, 2, 3, 4, 5]
    assert heard[0][1:] == (41, True)


def test_what_enters_a_part_has_the_shapes_of_each_profile():
    made = model("[odd] e = Reshape(d, s)", "N, 4")
    profiles = ({"x": ((2, 4), (4, 4), (8, 4))}, {"x": ((10, 4), (20, 4), (20, 4))})
    builder = Builder("Reshape")
    found = search(made, builder, ["odd"], profiles=profiles)
    assert found.profiles == ({"d": ((2, 4), (4, 4), (8, 4))}, {"d": ((10, 4), (20, 4), (20, 4))})
    (given,) = found.model.graph.input
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [0, 4]


def test_elements_that_decide_sizes_come_along():
    graph = f"g (float[N, 4] x, int64[2] s) => (float[] y) {{ {chain('a', 4, 'x', 'd')} [odd] e = Reshape(d, s) y = Relu(e) }}"
    profiles = ({"x": ((2, 4), (4, 4), (8, 4)), "s": ((2, 4), (4, 4), (8, 4))},)
    found = search(parse(graph), Builder("Reshape"), ["odd"], profiles=profiles)
    assert found.profiles == ({"d": ((2, 4), (4, 4), (8, 4)), "s": ((2, 4), (4, 4), (8, 4))},)
    shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in found.model.graph.input}
    assert shapes == {"d": [0, 4], "s": [2]}


def test_the_same_message_about_other_names_and_numbers_is_the_same_failure():
    made = model()
    texts = ("odd: 3 is wrong at d", "odd: 17 is wrong at a3")
    kinds = {failure_of(BuildResult(ok=False, stage="build", errors=(TensorRTMessage(t),)), made) for t in texts}
    assert len(kinds) == 1
    other = failure_of(BuildResult(ok=False, stage="parse", errors=(TensorRTMessage(texts[0]),)), made)
    assert other not in kinds
    assert death_of(BuilderDied("the build used 812 MiB of memory, more than 800 MiB, and was stopped")) == death_of(
        BuilderDied("the build used 950 MiB of memory, more than 800 MiB, and was stopped")
    )


def test_a_backend_that_is_gone_is_no_failure_of_the_model():
    with pytest.raises(UsageProblem, match="no TensorRT"):
        failure_of(BuildResult(ok=False, stage="load", errors=(TensorRTMessage("no TensorRT"),)), model())


@pytest.fixture
def work(tmp_path, monkeypatch, unshared_child) -> Path:
    (tmp_path / "temp").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.rtx
def test_a_refused_model_through_the_command(work, capsys):
    saved(model("[odd] e = Det(d)", "N, 4, 4"), work / "m.onnx")
    (work / "c.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    assert run(["build", "m.onnx", "-p", "c.yaml", "--isolate", "--progress", "json"]) == 5
    shown = capsys.readouterr().err
    trial = {"stage": "isolate", "done": 1, "total": 60, "unit": "trials", "at": "1 node: fails in the same way"}
    assert any(trial.items() <= json.loads(line).items() for line in shown.splitlines() if line.startswith("{"))
    assert "smallest failing part: m.isolated (1 of 41 nodes, 1 trial)" in shown
    assert sorted(p.name for p in work.iterdir()) == ["c.yaml", "m.isolated", "m.onnx"]
    part = onnx.load(work / "m.isolated" / "model.onnx")
    assert operators(part) == ["Det"]
    readme = (work / "m.isolated" / "README.txt").read_text()
    assert "TensorRT's parser knows the operator by name only" in readme
    assert "to repeat it: python -m trtnorm_cli.tensorrt.child.worker m.isolated" in readme
    done = subprocess.run([sys.executable, "-m", "trtnorm_cli.tensorrt.child.worker", "m.isolated"], check=False)
    assert done.returncode == 1
    assert json.loads((work / "m.isolated" / "result.json").read_text())["errors"][0]["operator"] == "Det"
    assert run(["build", "m.onnx", "-p", "c.yaml", "--isolate"]) == 5
    assert (work / "m.isolated-2").is_dir()


@pytest.mark.rtx
def test_an_error_of_the_builder_that_names_no_node(work, capsys):
    weights = {"w": random(4, 2, 3, 3)}
    graph = f"g (float[2, 2, 9, 9] x) => (float[] y) {{ {chain('a', 6, 'x', 'd')} e = Conv(d, w) {chain('b', 6, 'e', 'y')} }}"
    saved(parse(graph, weights), work / "m.onnx")
    (work / "c.yaml").write_text("builder: {refit: true}\n")
    assert run(["build", "m.onnx", "-p", "c.yaml", "--isolate"]) == 5
    assert "the builder needs a GPU here" in capsys.readouterr().err
    assert operators(onnx.load(work / "m.isolated" / "model.onnx")) == ["Conv"]


CRASHES = """
import os, sys
from pathlib import Path
import onnx
from trtnorm_cli.tensorrt.child import worker
folder = Path(sys.argv[1])
request = worker.BuildRequest.load(folder)
if "Softsign" in [node.op_type for node in onnx.load(folder / request.model).graph.node]:
    os.abort()
worker.main()
"""


@pytest.mark.rtx
def test_a_builder_that_dies(work, capsys, monkeypatch):
    monkeypatch.setattr(build_job, "launch", partial(launch, worker=(sys.executable, "-c", CRASHES)))
    saved(model(), work / "m.onnx")
    assert run(["build", "m.onnx", "--isolate"]) == 6
    shown = capsys.readouterr().err
    assert "the build process was ended by SIGABRT" in shown
    assert "smallest failing part: m.isolated (1 of 41 nodes" in shown
    assert operators(onnx.load(work / "m.isolated" / "model.onnx")) == ["Softsign"]


@pytest.mark.rtx
def test_a_model_that_builds_needs_no_isolation(work):
    saved(model("e = Neg(d)"), work / "m.onnx")
    assert run(["build", "m.onnx", "--isolate", "--no-compare"]) == 0
    assert sorted(p.name for p in work.iterdir()) == ["m.engine", "m.engine.json", "m.onnx"]
