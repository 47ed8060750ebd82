"""What ``trtnorm inspect`` shows of every kind of model, at 80 columns and at 120, and of the nodes that were asked for."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import pytest

from tests.models import batchnorm, parse, random, saved
from tests.report.test_accidents import ROW
from trtnorm_cli.cli import run
from trtnorm_cli.records.digests import FileDigest
from trtnorm_cli.records.export import ExportedInput, ExportRecord, ExportVersions
from trtnorm_cli.tensorrt import engine_file

CHANNELS = 8
LAYERS = 24


def encoder(layers: int = LAYERS) -> str:
    """A chain of convolutions with a BatchNormalization each, half of them behind a Relu, named as exporters do."""
    body, data = [], "x"
    for number in range(layers):
        path = f"/module/encoder/stage.{number // 6}/block.{number % 6}"
        body.append(f'["{path}/conv/Conv"] c{number} = Conv <pads=[1, 1, 1, 1]> ({data}, w)')
        read = f"c{number}"
        if number % 2:
            body.append(f'["{path}/act/Relu"] r{number} = Relu(c{number})')
            read = f"r{number}"
        body.append(f'["{path}/norm/BatchNormalization"] n{number} = BatchNormalization({read}, gamma, beta, mu, var)')
        data = f"n{number}"
    shape = "float[batch_size, 8, height, width]"
    return f"g ({shape} x) => ({shape} y) {{ {' '.join(body)} [out] y = Sigmoid({data}) }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("inspected")
    saved(parse(encoder(), {"w": random(CHANNELS, CHANNELS, 3, 3), **batchnorm(CHANNELS)}), made / "m.onnx")
    sizes = {"batch_size": (1, 2, 4), "height": (16, 16, 32), "width": (16, 16, 32)}
    lines = [f"  {name}: {{min: {least}, opt: {usual}, max: {most}}}\n" for name, (least, usual, most) in sizes.items()]
    (made / "cfg.yaml").write_text("dims:\n" + "".join(lines))
    return made


# Stands for a process that imports TensorRT to say that there is no GPU.
ANSWER = json.dumps({"available": False, "reason": "no GPU"})
NO_GPU = f"import sys; from pathlib import Path; Path(sys.argv[1], 'result.json').write_text({ANSWER!r})"


@pytest.fixture
def inspected(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(engine_file, "INSPECTOR", (sys.executable, "-c", NO_GPU))

    def inspected(*arguments: str, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["inspect", *arguments]) == 0
        shown = capsys.readouterr().out
        for line in shown.splitlines():
            assert len(line) <= columns, line
            assert line == line.rstrip()
        return shown

    return inspected


@pytest.fixture(scope="module")
def engine(folder):
    arguments = ["build", str(folder / "m.onnx"), "-p", str(folder / "cfg.yaml"), "-o", str(folder / "m.engine")]
    assert run([*arguments, "--no-compare", "-q"]) == 0
    return "m.engine"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_model_in_a_page(inspected, columns):
    shown = inspected("m.onnx", columns=columns)
    assert "input   x     float  [batch_size, 8, height, width]" in shown, "the names of dimensions, whole"
    text = " ".join(shown.split())
    pattern = "/module/…/block.*/norm/" if columns == 80 else "/module/encoder/stage.*/block.*/norm/"
    for start, rule in (("fold an inference ", "fold-batchnorm-conv"), ("turn an inference ", "batchnorm-to-scale-shift")):
        assert f"12 × BatchNormalization (8), {pattern}BatchNormalization: rewritten: {start}" in text
        assert f"({rule})" in text
    assert len(shown.splitlines()) < 20


def test_every_normalization_on_its_own(inspected):
    shown = inspected("m.onnx", "--all")
    assert shown.count("operator: BatchNormalization") == LAYERS
    assert "/module/encoder/stage.3/block.5/norm/BatchNormalization\n" in shown
    assert "×" not in re.sub(r"4 × 8", "", shown)


def test_nodes_that_are_asked_for(inspected, capsys):
    shown = inspected("m.onnx", "--nodes", "*/stage.2/block.1/*", "--nodes", "out")
    assert "4 nodes fit" in shown
    assert "/module/encoder/stage.2/block.1/act/Relu" in shown
    assert "  BatchNormalization (8), /module/encoder/…/block.1/norm/BatchNormalization:\n" in shown
    assert "12 ×" not in shown
    found = json.loads(inspected_json(capsys, "m.onnx", "--nodes", "*/stage.2/block.1/*"))
    assert [norm["name"] for norm in found["normalizations"]] == ["/module/encoder/stage.2/block.1/norm/BatchNormalization"]
    assert [node["operator"] for node in found["fitting"]] == ["Conv", "Relu", "BatchNormalization"]


def inspected_json(capsys, *arguments: str) -> str:
    assert run(["inspect", *arguments, "--json"]) == 0
    return capsys.readouterr().out


def test_a_pattern_that_fits_nothing(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run(["inspect", "m.onnx", "--nodes", "*/stage.2/block.1/batchnorm"]) == 2
    told = capsys.readouterr().err
    assert "error: m.onnx: no node fits --nodes */stage.2/block.1/batchnorm\n  fix: the nearest is /module/" in told


@pytest.mark.rtx
def test_a_network_in_a_page(inspected):
    shown = inspected("network:m.onnx")
    assert re.search(r"^\d+ layers: \d+ ", shown, re.MULTILINE)
    assert f"{LAYERS} × SCALE (" in shown
    assert "/block.*/norm/BatchNormalization" in shown
    assert "--all lists the layers" in shown
    assert len(shown.splitlines()) < 25


@pytest.mark.rtx
def test_the_layers_of_a_network(inspected, capsys):
    assert inspected("network:m.onnx", "--all").count("CONVOLUTION") >= LAYERS
    shown = inspected("network:m.onnx", "--nodes", "*/stage.1/block.2/*")
    assert len(re.findall(r"^/module/encoder/stage.1/block.2/\S+ +(CONVOLUTION|SCALE) ", shown, re.MULTILINE)) == 2
    assert run(["inspect", "network:m.onnx", "--nodes", "nothing"]) == 2
    assert "error: network:m.onnx: no node fits --nodes nothing" in capsys.readouterr().err


@pytest.mark.rtx
@pytest.mark.parametrize("columns", [80, 120])
def test_an_engine_and_its_manifest_show_the_same(inspected, engine, folder, columns):
    shown = inspected(engine, columns=columns)
    assert inspected(f"{engine}.json", columns=columns) == shown
    assert re.search(r"input +x +float +\[batch_size, 8, height, width\]", shown)
    text = " ".join(shown.split())
    assert re.search(r"12 × BatchNormalization, /module/\S+/block.\*/norm/BatchNormalization: rewritten: fold an ", text)
    assert "kernels by estimated time" in shown
    alone = folder / "alone.engine.json"
    alone.write_text((folder / f"{engine}.json").read_text())
    without = inspected("alone.engine.json", columns=columns)
    assert "inspector: the engine is not beside its manifest" in without
    same = [line for line in without.splitlines() if line in shown]
    assert len(same) >= len(shown.splitlines()) - 3


@pytest.mark.rtx
def test_the_nodes_of_an_engine(inspected, engine, capsys):
    shown = inspected(engine, "--nodes", "*/stage.1/block.2/*")
    assert "fold-batchnorm-conv" in shown
    assert "/module/encoder/stage.1/block.2/conv/Conv" in shown
    assert "engine size" not in shown
    assert "stage.3" not in shown
    found = json.loads(inspected_json(capsys, engine, "--nodes", "*/stage.1/block.2/*"))["manifest"]
    assert {change["node"] for change in found["changes"]} == {"/module/encoder/stage.1/block.2/norm/BatchNormalization"}
    assert found["network"]["dimensions"]["x"] == ["batch_size", 8, "height", "width"]


@pytest.mark.rtx
def test_an_engine_that_is_gone_and_a_manifest_that_is_run(engine, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "gone.engine.json").write_text((folder / f"{engine}.json").read_text())
    assert run(["inspect", "gone.engine"]) == 3
    assert "fix: its manifest is there: trtnorm inspect gone.engine.json" in capsys.readouterr().err
    assert run(["inspect", "missing.engine.json"]) == 3
    assert "there is no such manifest" in capsys.readouterr().err
    assert run(["compare", "m.onnx", f"{engine}.json"]) == 2
    assert "a manifest cannot be run" in capsys.readouterr().err


def test_the_manifest_of_an_export(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rows = tuple(replace(ROW, path=f"encoder.layers.{number}.norm") for number in range(6))
    record = ExportRecord(
        format=1,
        versions=ExportVersions("0.1.0", "2.13.0"),
        spec="net.py:net",
        weights=None,
        model=FileDigest("net.onnx", "0"),
        exporter="dynamo",
        because="it is the first that works",
        opset=18,
        inputs=(ExportedInput("x", "float32", ("batch", 8)),),
        outputs=("y",),
        dimensions=(),
        cleaning={},
        comparison=None,
        skipped=(),
        accidents=(),
        normalizations=rows,
        notes=(),
        exporter_warnings=(),
        seconds={},
    )
    (tmp_path / "net.onnx.json").write_text(json.dumps(record.to_json()))
    assert run(["inspect", "net.onnx.json"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("net.onnx.json: net.onnx, exported from net.py:net by trtnorm 0.1.0 with PyTorch\n  2.13.0\n")
    assert "  6 × BatchNorm2d (64), encoder.layers.*.norm: statistics tracked\n" in shown
    assert json.loads(inspected_json(capsys, "net.onnx.json")) == record.to_json()
    assert run(["inspect", "net.onnx.json", "--nodes", "*.3.*", "--all"]) == 0
    assert "\nencoder.layers.3.norm\n  type: torch.nn.BatchNorm2d, family: batch, shape: 64" in capsys.readouterr().out
    (tmp_path / "broken.json").write_text('{"exporter": "dynamo"}')
    assert run(["inspect", "broken.json"]) == 3
    assert "the manifest of this export cannot be read" in capsys.readouterr().err
