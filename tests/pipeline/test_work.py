"""How much work a build is, counted: engines, processes, sessions, evaluations in float64, and bytes.

The limits are what was counted when they were written. A change that needs less lowers them, and one that needs more says why.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.models import parse, saved
from tests.pipeline.runs import build, manifest_of
from tests.work import convolutions, count_processes, counted, within
from trtnorm_cli import engine_making
from trtnorm_cli.onnx_model.save import save_model

pytestmark = pytest.mark.rtx


def bytes_so_far() -> tuple[int, int]:
    """The bytes that this process and all its children that have ended have read and written."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


@pytest.mark.parametrize("links", [6, 12])
def test_the_work_of_a_build_that_changes_something(work, monkeypatch, links):
    """Twice the changes take no further engine, process, session or pass over the graph.

    Two of the engines, with the changes and without, and one process for all sessions. Each convolution is multiplied twice for
    its proof and once for the comparison, in the model. Nothing is multiplied for its rewriting, which is told by its weights,
    for TensorRT's network, which is the rewriting, node by node, and for the noise of rounding, which is not asked for.
    """
    monkeypatch.setattr("trtnorm_cli.build_job.comparison_budget_s", lambda tensorrt: 60.0)
    saved(convolutions(links), work / "links.onnx")
    Path("cfg.yaml").write_text("dims: {N: {min: 1, opt: 1, max: 1}}\n")
    found, processes = counted(monkeypatch), count_processes(monkeypatch)
    assert build("links.onnx") == 0
    assert len(manifest_of(work / "links.engine")["changes"]) == links
    assert within(processes, {"child.worker": 2, "evaluate.ort_worker": 1})
    assert found.pop("numbers in float64") <= 7_880 * links
    assert within(found, {"sessions": 5, "whole-graph inferences": 5, "products in float64": 3 * links})


def test_the_bytes_of_a_build_that_changes_nothing(work):
    """The weights are written twice, as the model for TensorRT and as the engine.

    They are read for the digests of the model, its copy and the engine, to be copied, and for float64 in both files. What
    TensorRT and ONNX Runtime map is not counted.
    """
    links, side = 8, 1024
    nodes = " ".join(f"t{i + 1} = MatMul(t{i}, w{i})" for i in range(links))
    weights = {f"w{i}": np.full((side, side), (i + 1) / side, np.float32) for i in range(links)}
    saved(parse(f"g (float[1, {side}] t0) => (float[1, {side}] t{links}) {{ {nodes} }}", weights), work / "still.onnx")
    size = (work / "still.onnx").stat().st_size
    assert build("good.onnx") == 0  # what is imported is not read a second time
    Path("cfg.yaml").write_text("optimize: never\n")
    before = bytes_so_far()
    assert build("still.onnx") == 0
    read, written = (after - earlier for after, earlier in zip(bytes_so_far(), before, strict=True))
    assert read <= 7.5 * size
    assert written <= 2.1 * size


def test_large_weights_are_in_a_file_that_can_be_mapped(work, monkeypatch):
    """TensorRT and ONNX Runtime map a file of weights, where they copy what is in the message of a model."""
    kinds = []
    monkeypatch.setattr(engine_making, "save_model", lambda *given: kinds.append(files := save_model(*given)) or files)
    Path("cfg.yaml").write_text("optimize: never\n")
    for name, side in ("small", 1024), ("large", 2080):
        weights = {"w": np.full((side, side), 1 / side, np.float32)}
        saved(parse(f"g (float[1, {side}] x) => (float[1, {side}] y) {{ y = MatMul(x, w) }}", weights), work / f"{name}.onnx")
        assert build(f"{name}.onnx") == 0
    assert [[file.suffix for file in files] for files in kinds] == [[".onnx"], [".data", ".onnx"]]
