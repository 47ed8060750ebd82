"""Asking for the network of a file: the child process, its answers, and its deaths."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.models import parse, random
from tests.tensorrt.network.harness import Bench, run_onnx
from trtnorm_cli.child_process import Limits
from trtnorm_cli.cli import run
from trtnorm_cli.errors import BuilderDied, ModelError, TensorRTRefusal, UsageProblem
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.tensorrt.network import UntranslatableNetwork, network_of, parsing
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer

RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }'
RANDOM = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[3] y) { [noise] y = RandomNormal <shape = [3]> () }'
BAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { [odd] y = Whatever (x) }'


@pytest.fixture(autouse=True)
def _work_folders_in_the_tests_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return written(tmp_path, RELU)


def written(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def fake(tmp_path: Path, code: str) -> tuple[str, ...]:
    script = tmp_path / "fake_worker.py"
    script.write_text(f"import json, os, signal, sys, time\nfrom pathlib import Path\n{code}\n", encoding="utf-8")
    return sys.executable, str(script)


@pytest.mark.rtx
@pytest.mark.parametrize("is_beside", [True, False])
def test_only_beside_the_model_a_network_refers_to_its_weights(tmp_path: Path, is_beside: bool) -> None:
    side = 100
    model = parse(f"g (float[2, {side}] x) => (float[2, {side}] y) {{ y = MatMul(x, w) }}", {"w": random(side, side)})
    path, out = tmp_path / "model.onnx", tmp_path / ("" if is_beside else "elsewhere") / "network.onnx"
    out.parent.mkdir(exist_ok=True)
    onnx.save_model(model, path, save_as_external_data=True, location="model.data", size_threshold=1024)
    network_of(path, out)
    assert (out.stat().st_size < path.with_name("model.data").stat().st_size) is is_beside
    x = random(2, side)
    np.testing.assert_allclose(evaluate_float64(out, {"x": x}).outputs["y"], evaluate_float64(path, {"x": x}).outputs["y"])


@pytest.mark.rtx
def test_the_network_of_a_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "network.onnx"
    translation = network_of(model, out)
    assert translation.layers == {"ACTIVATION": 1}
    assert (translation.model, translation.network, translation.warnings, translation.notes) == (model, out, (), ())
    assert translation.backend in ("tensorrt", "tensorrt-rtx")
    x = np.array([[-1, 0, 2]], np.float32)
    assert run_onnx(onnx.load(out), {"x": x})["y"].tolist() == [[0, 0, 2]]


@pytest.mark.rtx
def test_the_parsers_words_reach_the_user(tmp_path: Path) -> None:
    with pytest.raises(TensorRTRefusal) as caught:
        network_of(written(tmp_path, BAD), tmp_path / "out.onnx")
    assert "odd" in str(caught.value.where)
    assert "Plugin not found" in str(caught.value.where)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.rtx
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes(4096)])
def test_a_file_without_a_graph_is_refused_although_the_parser_accepts_it(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(TensorRTRefusal):
        network_of(path, tmp_path / "out.onnx")


@pytest.mark.rtx
def test_layers_without_a_translation_are_named(tmp_path: Path) -> None:
    with pytest.raises(UntranslatableNetwork) as caught:
        network_of(written(tmp_path, RANDOM), tmp_path / "out.onnx")
    assert "layer noise (FILL): RANDOM_NORMAL draws its values" in str(caught.value.where)
    assert caught.value.exit_code == TensorRTRefusal.exit_code


@pytest.mark.rtx
def test_every_layer_without_a_translation_is_named() -> None:
    bench = Bench()
    x = bench.input("x", (3,))
    for name in ("one", "two"):
        noise = bench.network.add_fill((3,), bench.trt.FillOperation.RANDOM_UNIFORM, bench.trt.DataType.FLOAT)
        noise.name = name
        x = bench.network.add_elementwise(x, noise.get_output(0), bench.trt.ElementWiseOperation.SUM).get_output(0)
    with pytest.raises(UntranslatableLayer) as caught:
        bench.model(x)
    assert [caught.value.layer, *(other.layer for other in caught.value.others)] == ["one", "two"]


def test_a_missing_file_and_an_unknown_backend(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model file"):
        network_of(tmp_path / "none.onnx", tmp_path / "out.onnx")
    with pytest.raises(UsageProblem, match="no backend named"):
        network_of(model, tmp_path / "out.onnx", backend="tensorflow")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("os.abort()", "was ended by SIGABRT"),
        ("sys.exit(3)", "ended with exit code 3 and without a result"),
        ("pass", "ended with exit code 0 and without a result"),
    ],
)
def test_the_death_of_the_child_is_decoded(code: str, words: str, model: Path, tmp_path: Path) -> None:
    worker = fake(tmp_path, f"print('half way', flush=True)\n{code}")
    with pytest.raises(BuilderDied, match=words) as caught:
        network_of(model, tmp_path / "out.onnx", worker=worker)
    assert "half way" in str(caught.value.where)
    assert "fake_worker.py" in str(caught.value.hint)


def test_a_child_that_hangs_is_stopped(model: Path, tmp_path: Path) -> None:
    worker = fake(tmp_path, "Path(sys.argv[1]).with_name('pid').write_text(str(os.getpid()))\ntime.sleep(600)")
    with pytest.raises(BuilderDied, match="took longer than 1 s and was stopped") as caught:
        network_of(model, tmp_path / "out.onnx", limits=Limits(1), worker=worker)
    folder = Path(str(caught.value.where).splitlines()[0].removeprefix("log: ")).parent
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_a_child_that_takes_too_much_memory_is_stopped(model: Path, tmp_path: Path) -> None:
    worker = fake(tmp_path, "held = b'x' * (300 << 20)\ntime.sleep(600)")
    with pytest.raises(
        BuilderDied, match=r"TensorRT's parser used \d+ MiB of memory, more than 200 MiB, and was stopped"
    ) as caught:
        network_of(model, tmp_path / "out.onnx", worker=worker, limits=Limits(memory_bytes=200 << 20))
    assert "allow more with --memory" in str(caught.value.hint)


@pytest.mark.rtx
def test_the_limit_of_the_command_reaches_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def network(model: Path, out: Path, backend: str | None, limits: Limits) -> None:
        asked.append(limits.memory_bytes)
        raise BuilderDied("enough")

    written(tmp_path, RELU.replace("[N,", "[2,"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trtnorm_cli.compare.participants.network_of", network)
    run(["compare", "model.onnx", "network:model.onnx", "--memory", "3GiB"])
    assert asked == [3 << 30]


def test_the_child_is_told_absolute_paths(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = fake(tmp_path, "sys.stdout.write(Path(sys.argv[1]).read_text())\nsys.exit(3)")
    with pytest.raises(BuilderDied) as caught:
        network_of(Path("model.onnx"), Path("out.onnx"), worker=worker)
    log = Path(str(caught.value.where).splitlines()[0].removeprefix("log: "))
    assert json.loads(log.read_text()) == {"model": str(model), "output": str(tmp_path / "out.onnx"), "backend": None}


@pytest.mark.rtx
def test_large_weights_go_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "EXTERNAL_DATA_BYTES", 1000)
    bench = Bench()
    weights = np.random.default_rng(0).normal(size=(1, 4000)).astype(np.float32)
    x = bench.input("x", (1, 4000))
    total = bench.network.add_elementwise(x, bench.constant(weights), bench.trt.ElementWiseOperation.SUM).get_output(0)
    total.name = "y"
    bench.network.mark_output(total)
    out = tmp_path / "network.onnx"
    for _ in range(2):  # writing twice must not append
        assert parsing.save(parsing.translate_network(bench.network, bench.trt), out)
    assert (tmp_path / "network.onnx.data").stat().st_size == weights.nbytes
    assert out.stat().st_size < 2000
    assert run_onnx(onnx.load(out), {"x": -weights})["y"].tolist() == np.zeros((1, 4000)).tolist()


@pytest.mark.rtx
def test_a_graph_thousands_of_layers_deep(tmp_path: Path) -> None:
    body = " ".join(f"t{i + 1} = Neg (t{i})" for i in range(6000))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N] t0) => (float[N] t6000) {{ {body} }}'
    translation = network_of(written(tmp_path, text), tmp_path / "out.onnx")
    assert translation.layers == {"UNARY": 6000}
