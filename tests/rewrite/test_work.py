"""How much work a rewriting is, counted.

The limits are what was counted when they were written. A change that needs less lowers them, and one that needs more says why.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from tests.work import convolutions, counted, within
from trtnorm_cli.evaluate.shared_tensors import SharedTensors
from trtnorm_cli.onnx_model import stored, surgery
from trtnorm_cli.onnx_model.late_imports import import_onnx_ir
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.stored import file_part, is_external
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rules import fold_scale_shift_upstream
from trtnorm_cli.rewrite.scale_shift import chain, source


def norms(links: int) -> onnx.ModelProto:
    """``links`` times MatMul and LayerNormalization: there is nothing to change."""
    nodes = " ".join(
        f"[product{i}] p{i} = MatMul(x{i}, w{i}) [norm{i}] x{i + 1} = LayerNormalization(p{i}, s{i}, b{i})"
        for i in range(links)
    )
    weights = {f"w{i}": random(16, 16, seed=i) for i in range(links)}
    for i in range(links):
        weights |= {f"s{i}": random(16, seed=i), f"b{i}": random(16, seed=-i - 1 + 2 * links)}
    return parse(f"g (float[N, 4, 16] x0) => (float[N, 4, 16] x{links}) {{ {nodes} }}", weights)


def attention() -> onnx.ModelProto:
    """A block of a vision transformer."""
    heads = " ".join(
        f"m{n} = MatMul(a, w{n}) v{n} = Reshape(m{n}, split) {n} = Transpose <perm=[{order}]> (v{n})"
        for n, order in {"q": "0, 2, 1, 3", "k": "0, 2, 3, 1", "v": "0, 2, 1, 3"}.items()
    )
    text = f"""g (float[N, 16, 64] x) => (float[N, 16, 64] y) {{
      [ln1] a = LayerNormalization(x, s1, b1) {heads}
      d = MatMul(q, k) e = Mul(d, scale) p = Softmax <axis=-1> (e) o = MatMul(p, v) t = Transpose <perm=[0, 2, 1, 3]> (o)
      f = Reshape(t, flat) h = MatMul(f, wo) r = Add(x, h)
      [ln2] l = LayerNormalization(r, s2, b2) u = MatMul(l, w1) g1 = Erf(u) g2 = Mul(u, g1) z = MatMul(g2, w2)
      y = Add(r, z) }}"""
    weights = {f"w{name}": random(64, 64) for name in "qkvo"} | {"w1": random(64, 128), "w2": random(128, 64)}
    weights |= {name: random(64) for name in ("s1", "b1", "s2", "b2")}
    shapes = {"split": np.array([0, 16, 4, 16]), "flat": np.array([0, 16, 64]), "scale": np.array(0.25, np.float32)}
    return parse(text, {**weights, **shapes})


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What a rewriting does, counted."""
    return counted(monkeypatch)


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """Calls of Python functions in this thread."""
    count: Counter[str] = Counter()

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            count["python"] += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield count
    finally:
        sys.setprofile(before)


def rewritten(model: onnx.ModelProto, folder: Path) -> Rewriting:
    return prepare(OpenedModel.of_file(saved(model, folder / "m.onnx"), None), needs_sizes=False).rewrite()


def test_changes_share_sessions_and_passes_over_the_graph(tmp_path, work):
    assert len(rewritten(convolutions(20), tmp_path).changes) == 20
    assert work.pop("numbers in float64") <= 190_000
    assert within(work, {"sessions": 2, "whole-graph inferences": 6, "products in float64": 2 * 20})


def test_twice_as_many_changes_take_no_further_session_or_pass(tmp_path, work):
    assert len(rewritten(convolutions(40), tmp_path).changes) == 40
    assert work.pop("numbers in float64") <= 2 * 190_000
    assert within(work, {"sessions": 2, "whole-graph inferences": 6, "products in float64": 2 * 40})


@pytest.mark.parametrize("model", [norms(100), attention()], ids=["100 LayerNormalizations", "a block of a transformer"])
def test_where_nothing_changes_nothing_is_run(tmp_path, work, model):
    assert rewritten(model, tmp_path).changes == ()
    assert within(work, {"whole-graph inferences": 5})


def rows(links: int) -> onnx.ModelProto:
    """``links`` times Relu and BatchNormalization, which nothing takes in."""
    nodes = " ".join(
        f"a{i} = Relu(x{i}) [bn{i}] x{i + 1} = BatchNormalization(a{i}, gamma{i}, beta{i}, mu{i}, var{i})" for i in range(links)
    )
    weights: dict[str, np.ndarray] = {}
    for i in range(links):
        weights |= {f"{name}{i}": np.abs(random(8, seed=i)) + 1 for name in ("gamma", "beta", "mu", "var")}
    return parse(f"g (float[N, 8, 4, 4] x0) => (float[N, 8, 4, 4] x{links}) {{ {nodes} }}", weights)


def readers(links: int) -> onnx.ModelProto:
    """A BatchNormalization that ``links`` operators read."""
    nodes = " ".join(f"r{i} = Neg(y)" for i in range(links))
    total = ", ".join(f"r{i}" for i in range(links))
    norm = "y = BatchNormalization(x, gamma, beta, mu, var)"
    return parse(f"g (float[N, 8, 4, 4] x) => (float[N, 8, 4, 4] z) {{ {norm} {nodes} z = Sum({total}) }}", batchnorm(8))


@pytest.mark.parametrize("make", [norms, convolutions, rows, readers])
def test_the_work_grows_as_the_graph_does(tmp_path, make):
    """Four times the nodes take at most four and a half times the calls."""
    rewritten(make(1), tmp_path)
    with calls() as few:
        rewritten(make(10), tmp_path)
    with calls() as many:
        rewritten(make(40), tmp_path)
    assert many["python"] <= 4.5 * few["python"]


def sizes(links: int) -> onnx.ModelProto:
    """``links`` times a Reshape to a size that is computed from another: each has to be folded."""
    nodes = " ".join(
        f"s{i} = Shape(x{i}) n{i} = Gather<axis = 0>(s{i}, first) u{i} = Unsqueeze(n{i}, axes) "
        f"c{i} = Concat<axis = 0>(u{i}, rest) x{i + 1} = Reshape(x{i}, c{i})"
        for i in range(links)
    )
    values = {"first": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return parse(f"g (float[6, N] x0) => (float[6, M] x{links}) {{ {nodes} }}", values)


def test_a_model_is_serialised_once_however_often_it_is_folded(tmp_path, monkeypatch):
    import_onnx_ir()
    import onnx_ir as ir

    count: Counter[str] = Counter()
    node, whole = ir.serde.serialize_node, ir.serde.serialize_model
    monkeypatch.setattr(ir.serde, "serialize_node", lambda *given, **more: (count.update(["nodes"]), node(*given, **more))[1])
    monkeypatch.setattr(ir.serde, "serialize_model", lambda *given: (count.update(["models"]), whole(*given))[1])
    assert len(rewritten(sizes(10), tmp_path).cleaned.graph.node) == 10
    assert within(count, {"models": 1, "nodes": 71})


def test_a_scale_and_shift_is_worked_out_once_for_a_state_of_the_graph(tmp_path, monkeypatch):
    """The rules that look for them walk past each again and again."""
    links = 10
    nodes = " ".join(f"a{i} = Add(x{i}, c{i}) x{i + 1} = Relu(a{i})" for i in range(links))
    model = parse(f"g (float[N, 8] x0) => (float[N, 8] x{links}) {{ {nodes} }}", {f"c{i}": random(8) for i in range(links)})
    count: Counter[str] = Counter()
    asked, found = source.scale_and_shift_of, source._found

    def counted(op):
        count["asked"] += 1
        return asked(op)

    monkeypatch.setattr(source, "_found", lambda op: (count.update(["worked out"]), found(op))[1])
    for user in (chain, fold_scale_shift_upstream):
        monkeypatch.setattr(user, "scale_and_shift_of", counted)
    assert rewritten(model, tmp_path).changes == ()
    assert count.pop("asked") > links
    assert within(count, {"worked out": links})


def test_a_weight_is_read_once_though_few_of_them_fit_into_memory(tmp_path, monkeypatch):
    """Where rules fit is found out without the values of large weights."""
    links, read = 10, Counter[str]()
    reads = surgery.tensor_array

    def counted(tensor: onnx.TensorProto, folder: Path | None = None) -> np.ndarray:
        read[tensor.name] += 1
        return reads(tensor, folder)

    model = convolutions(links)
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 4}
    monkeypatch.setattr(surgery, "_CACHE_BYTES", 2 * max(len(tensor.raw_data) for tensor in model.graph.initializer))
    monkeypatch.setattr(surgery, "tensor_array", counted)
    assert len(rewritten(model, tmp_path).changes) == links
    assert within(Counter({name: read[name] for name in weights}), dict.fromkeys(weights, 1))


def wide_convolutions(links: int, channels: int) -> onnx.ModelProto:
    """Folds of large weights."""
    nodes = " ".join(
        f"c{i} = Conv(x{i}, w{i}) x{i + 1} = BatchNormalization(c{i}, gamma{i}, beta{i}, mu{i}, var{i})" for i in range(links)
    )
    weights = {f"w{i}": random(channels, channels, 1, 1, seed=i) for i in range(links)}
    for i in range(links):
        weights |= batchnorm(channels, seed=i, suffix=str(i))
    sizes = f"N, {channels}, 8, 8"
    return parse(f"g (float[{sizes}] x0) => (float[{sizes}] x{links}) {{ {nodes} }}", weights)


def test_large_weights_are_written_once_and_read_in_place_by_onnx_runtime(tmp_path, monkeypatch):
    """Neither side's weight is copied into the memory that is shared, and the file with the new ones becomes the result's."""
    written, shared, real, write = [], [], SharedTensors.put, os.pwrite
    monkeypatch.setattr(SharedTensors, "put", lambda self, array: shared.append(np.asarray(array).nbytes) or real(self, array))
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: written.append(len(data)) or write(file, data, at))
    channels, links = 512, 3
    made = rewritten(wide_convolutions(links, channels), tmp_path)
    assert [change.check.passed for change in made.changes] == [True] * links
    assert [change.check.evaluated_with for change in made.changes] == ["ONNX Runtime and float64"] * links
    assert sum(written) == links * channels * channels * 4
    assert max(shared) < channels * channels
    files = save_model(made.model, tmp_path / "out.onnx", made.folder, external_from=0)
    held = {file_part(tensor, None).file.stat().st_ino for tensor in made.model.graph.initializer if is_external(tensor)}
    assert files[0].stat().st_ino in held
    assert files[0].stat().st_size < links * channels * channels * 4 + 50_000


@pytest.mark.parametrize("external", [False, True], ids=["in the model's file", "beside it"])
def test_large_weights_of_a_relative_path_are_read_in_place(tmp_path, monkeypatch, work, external):
    """The process that reads them has another working folder."""
    file = saved(wide_convolutions(3, 512), tmp_path / "m.onnx")
    if external:
        onnx.save(onnx.load(file), file, save_as_external_data=True, location="m.data", size_threshold=1024)
    monkeypatch.chdir(tmp_path)
    made = prepare(OpenedModel.of_file(Path("m.onnx"), None), needs_sizes=False).rewrite()
    assert [change.check.evaluated_with for change in made.changes] == ["ONNX Runtime and float64"] * 3
    assert work["sessions"] == 2


def test_weights_of_a_model_in_one_file_are_written_once(tmp_path, monkeypatch):
    """Nothing is copied at the end but what did not change."""
    copied, copy, links, channels = [], stored.copy_part, 5, 1024
    monkeypatch.setattr(stored, "copy_part", lambda part, target: copied.append(part.length) or copy(part, target))
    source = saved(wide_convolutions(links, channels), tmp_path / "m.onnx")
    made = prepare(OpenedModel.of_file(source), needs_sizes=False).rewrite()
    assert len(made.changes) == links
    (path,) = save_model(made.model, tmp_path / "out.onnx", made.folder, is_result=True)
    held = {file_part(tensor, None).file.stat().st_ino for tensor in made.model.graph.initializer if is_external(tensor)}
    assert path.stat().st_ino in held
    assert copied == []
    assert path.stat().st_size < links * channels * channels * 4 + 50_000
