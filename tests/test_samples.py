"""The commands in each sample's README run, and do what the README says."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.work import when_busy

REPOSITORY = Path(__file__).parents[1]
SAMPLES = sorted(path.parent for path in (REPOSITORY / "samples").glob("*/README.md"))
RESNET18 = REPOSITORY / "samples" / "resnet18_batchnorm"

# The README's build profile with small shapes; the commands are the same.
SMALL_PROFILE = """
optimization_profiles:
  - inputs:
      image: {min: [1, 3, 32, 32], opt: [1, 3, 64, 64], max: [2, 3, 64, 96]}
"""


def commands(readme: Path) -> str:
    """All ``sh`` blocks of a README, in order, as one script."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", readme.read_text(encoding="utf-8"), re.S | re.M))


def environment() -> dict[str, str]:
    """This interpreter and its console scripts first on the PATH; no colour, no terminal width of the moment."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(REPOSITORY), "COLUMNS": "160"}


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=when_busy(240),
        check=False,
    )


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` filled, for all workers of this run: the first that asks has it made, the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            being_made = tmp_path_factory.mktemp(name)
            make(being_made)
            being_made.rename(folder)
    return folder


def test_every_sample_has_a_readme_with_commands():
    folders = {path for path in (REPOSITORY / "samples").iterdir() if path.is_dir()}
    assert folders == set(SAMPLES)
    assert [folder.name for folder in SAMPLES if not commands(folder / "README.md")] == []


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder in which the README's commands have run, and what they wrote to stdout and stderr."""

    def make(folder: Path) -> None:
        (folder / "samples").symlink_to(REPOSITORY / "samples")
        (folder / "configs").mkdir()
        (folder / "configs" / "resnet18.yaml").write_text(SMALL_PROFILE)
        done = run(commands(RESNET18 / "README.md"), folder)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "stdout.txt").write_text(done.stdout, encoding="utf-8")
        (folder / "stderr.txt").write_text(done.stderr, encoding="utf-8")

    folder = made_once(tmp_path_factory, "resnet18", make)
    return folder, *((folder / name).read_text(encoding="utf-8") for name in ("stdout.txt", "stderr.txt"))


@pytest.mark.torch
@pytest.mark.rtx
@pytest.mark.timeout(1800)
class TestResnet18:
    def test_the_export_keeps_20_batchnorms_and_the_dynamic_dimensions(self, resnet18):
        model = onnx.load(resnet18[0] / "resnet18.onnx")
        operators = [node.op_type for node in model.graph.node]
        assert (operators.count("BatchNormalization"), operators.count("Conv")) == (20, 20)
        (image,), (logits,) = model.graph.input, model.graph.output
        assert (image.name, dimensions(image)) == ("image", ["N", 3, "H", "W"])
        assert (logits.name, dimensions(logits)) == ("logits", ["N", 1000])

    def test_no_batchnorm_is_trivial(self, resnet18):
        model = onnx.load(resnet18[0] / "resnet18.onnx")
        weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
        parameters = [pair for node in norms for pair in zip(node.input[1:], (1, 0, 0, 1), strict=True)]
        assert len(parameters) == 20 * 4
        for name, neutral in parameters:
            assert np.std(weights[name]) > 0.01, name
            assert np.all(weights[name] != neutral), name

    def test_the_export_names_no_path_of_this_machine(self, resnet18):
        content = (resnet18[0] / "resnet18.onnx").read_bytes()
        assert str(REPOSITORY).encode() not in content
        assert b"site-packages" not in content

    def test_the_export_shows_none_of_the_exporters_noise(self, resnet18):
        assert "torchvision" not in resnet18[2]
        assert "Warning" not in resnet18[2]

    def test_the_engine_is_the_one_the_manifest_describes(self, resnet18):
        engine = resnet18[0] / "resnet18.engine"
        manifest = json.loads((resnet18[0] / "resnet18.engine.json").read_text())
        assert manifest["engine"]["sha256"] == hashlib.sha256(engine.read_bytes()).hexdigest()
        assert manifest["engine"]["bytes"] == engine.stat().st_size > 1_000_000

    def test_every_batchnorm_but_the_last_went_into_its_convolution(self, resnet18):
        """The last one stays in front of the pooling, and the engine shows that nothing else is to be gained."""
        manifest = json.loads((resnet18[0] / "resnet18.engine.json").read_text())
        assert [change["rule"] for change in manifest["changes"]] == ["fold-batchnorm-conv"] * 19
        assert manifest["optimize"]["chosen"]["builds"] == 1
        assert all(change["check"]["passed"] and change["check"]["max_rel"] < 1e-5 for change in manifest["changes"])
        assert manifest["network"]["layers_by_type"]["CONVOLUTION"] == 20
        assert manifest["network"]["layers_by_type"]["SCALE"] == 1

    def test_the_readme_shows_what_is_printed(self, resnet18):
        """Rows of the table that depend neither on shapes nor on the machine; where they are wrapped may change."""
        shown = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
        printed = {" ".join(line.split()) for line in resnet18[1].splitlines()}
        for row in ("cleaned", "normalizations"):
            (line,) = [line for line in printed if line.startswith(row + " ")]
            assert line in shown

    @pytest.mark.slow
    def test_the_export_is_the_same_every_time(self, resnet18, tmp_path):
        done = run(f"PYTHONHASHSEED=1 python {RESNET18 / 'export.py'} -o again.onnx", tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "again.onnx").read_bytes() == (resnet18[0] / "resnet18.onnx").read_bytes()

    @pytest.mark.gpu
    def test_a_gpu_opens_the_engine(self, resnet18):
        done = run("trtnorm inspect resnet18.engine --json", resnet18[0])
        assert json.loads(done.stdout)["inspector"]["available"], done.stdout


def dimensions(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
