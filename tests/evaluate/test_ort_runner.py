from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from trtnorm_cli.evaluate import model_file as model_file_module
from trtnorm_cli.evaluate import ort_runner
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed, cleaned
from trtnorm_cli.evaluate.ort_worker import session_options

pytestmark = pytest.mark.usefixtures("unshared_child")


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


RELU = parsed("g (float[N] x) => (float[N] y) { h = Neg(x) y = Relu(h) }")
ENDLESS = parsed(
    """g (float x) => (float y) {
        n = Constant<value: tensor = int64 {9000000000}>()
        y = Loop(n, , x) <body = b (int64 i, bool c, float a) => (bool d, float e) { d = Identity(c) e = Neg(a) }>
    }"""
)


@pytest.fixture(scope="module")
def runner():
    with OrtRunner(timeout_s=60, threads=1) as runner:
        yield runner


def children_of(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(stat.parent.name))
    return found


def test_outputs_of_a_model_in_memory(runner):
    result = runner.run(RELU, {"x": np.array([-1, 2], np.float32)})
    assert list(result) == ["y"]
    np.testing.assert_array_equal(result["y"], np.array([1, 0], np.float32))


def test_inner_tensors_can_be_asked_for(runner):
    before = RELU.SerializeToString()
    result = runner.run(RELU, {"x": np.array([-1, 2], np.float32)}, outputs=["h", "y"])
    assert list(result) == ["h", "y"]
    np.testing.assert_array_equal(result["h"], np.array([1, -2], np.float32))
    assert RELU.SerializeToString() == before


def test_inner_tensor_of_a_file_with_external_data(runner, tmp_path):
    model = parsed("g (float[N,8] x) => (float[N,8] y) { h = MatMul(x, w) y = Neg(h) }")
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.bin")
    x = np.ones((2, 8), np.float32)
    result = runner.run(tmp_path / "m.onnx", {"x": x}, outputs=["h"])
    np.testing.assert_array_equal(result["h"], x @ weight)
    np.testing.assert_array_equal(runner.run(tmp_path / "m.onnx", {"x": x})["y"], -(x @ weight))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.bin", "m.onnx"]


def test_large_models_in_memory_go_through_external_data(runner, monkeypatch):
    monkeypatch.setattr(model_file_module, "EXTERNAL_DATA_FROM_BYTES", 100)
    model = parsed("g (float[N,32] x) => (float[N,32] y) { h = MatMul(x, w) y = Add(h, b) }")
    weight, bias = np.random.default_rng(0).random((32, 32), np.float32), np.ones(32, np.float32)
    model.graph.initializer.extend([numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")])
    before = model.SerializeToString()
    x = np.eye(32, dtype=np.float32)
    np.testing.assert_allclose(runner.run(model, {"x": x})["y"], weight + 1, rtol=1e-6)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64, np.uint8),
        *(np.uint16, np.uint32, np.uint64, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    ],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_type_and_shape_comes_back_as_it_went(runner, dtype, shape):
    name = onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))).lower()
    dims = ",".join(map(str, shape))
    model = parsed(f"g ({name}[{dims}] x) => ({name}[{dims}] y) {{ y = Identity(x) }}")
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    y = runner.run(model, {"x": x})["y"]
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    np.testing.assert_array_equal(y.astype(float), x.astype(float))


@pytest.mark.parametrize(("kind", "values"), [("int4", [-3, 2, 5, -8, 7]), ("uint4", [3, 0, 15, 8])])
def test_four_bit_integers_in_and_out(runner, kind, values):
    dtype = getattr(ml_dtypes, kind)
    model = parsed(
        f"""g (float[N] x, {kind}[N] q) => ({kind}[N] y, float[N] z) {{
            s = Constant<value: tensor = float {{1.0}}>()  zero = Constant<value: tensor = {kind} {{0}}>()
            y = QuantizeLinear(x, s, zero)  z = DequantizeLinear(q, s) }}"""
    )
    result = runner.run(model, {"x": np.array(values, np.float32), "q": np.array(values).astype(dtype)})
    assert result["y"].dtype == dtype
    assert result["y"].astype(int).tolist() == values
    assert result["z"].tolist() == values


def test_strings_and_foreign_byte_order(runner):
    model = parsed("g (string[N] x) => (string[N] y, float[N] z) { y = Identity(x) z = Cast<to = 1>(x) }")
    result = runner.run(model, {"x": np.array(["1", "2.5"], object)})
    assert result["y"].tolist() == ["1", "2.5"]
    assert result["z"].tolist() == [1, 2.5]
    assert runner.run(RELU, {"x": np.array([-3.0], ">f4")})["y"].tolist() == [3]


def test_transposed_input(runner):
    model = parsed("g (float[N,M] x) => (float[N,M] y) { y = Neg(x) }")
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(runner.run(model, {"x": x})["y"], -x)


def test_a_file_that_takes_the_place_of_another_is_run(runner, tmp_path):
    path, found = tmp_path / "m.onnx", []
    for operator in ("Neg", "Abs", "Neg"):
        other = tmp_path / "other.onnx"
        onnx.save(parsed(f"g (float[N] x) => (float[N] y) {{ y = {operator}(x) }}"), other)
        other.replace(path)
        found += [runner.begin(path, {"x": np.array([2.0], np.float32)}, hold=True).results()[0]["y"][0] for _ in range(2)]
    assert found == [-2, -2, 2, 2, -2, -2]


def test_one_session_for_several_inputs(runner):
    feeds = [{"x": np.full(n, -n, np.float32)} for n in (1, 2, 5)]
    assert [r["y"].tolist() for r in runner.run_many(RELU, feeds)] == [[1], [2, 2], [5, 5, 5, 5, 5]]


def test_one_child_serves_many_models(runner):
    runner.run(RELU, {"x": np.zeros(1, np.float32)})
    first = children_of(os.getpid())
    with pytest.raises(RunFailed):
        runner.run(RELU, {})
    runner.run(RELU, {"x": np.zeros(1, np.float32)})
    assert children_of(os.getpid()) == first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g (bfloat16[1,2,4,4] x, bfloat16[3,2,3,3] w) => (bfloat16[N,C,H,W] y) { y = Conv(x, w) }",
            "tensor(bfloat16)",
        ),
        (
            "g (double[1,2,4,4] x, double[3,2,3,3] w) => (double[N,C,H,W] y) { y = Conv(x, w) }",
            "an implementation for Conv",
        ),
        ("g (float[1,2,4,4] x, float[3,2,3,3] w) => (float[1,3,2,2] y) { y = Nonsense(x, w) }", "Nonsense"),
    ],
)
def test_a_refusal_carries_the_words(runner, text, words):
    with pytest.raises(RunFailed) as failure:
        runner.run(parsed(text), {})
    assert words in failure.value.reason
    assert "ONNXRuntimeError" not in failure.value.reason
    assert failure.value.signal is None
    assert not failure.value.timed_out


def test_an_output_that_is_a_sequence_is_refused(runner):
    model = parsed("g (float[N] x) => (seq(float[N]) y) { y = SplitToSequence(x) }")
    with pytest.raises(RunFailed, match=r"output 'y' is a seq\(tensor\(float\)\)"):
        runner.run(model, {"x": np.ones(2, np.float32)})


def test_missing_and_unreadable_files(runner, tmp_path):
    with pytest.raises(RunFailed, match=r"absent\.onnx"):
        runner.run(tmp_path / "absent.onnx", {})
    with pytest.raises(RunFailed, match=r"absent\.onnx"):
        runner.run(tmp_path / "absent.onnx", {}, outputs=["y"])
    (tmp_path / "page.onnx").write_text("<html>")
    with pytest.raises(RunFailed, match="cannot be read"):
        runner.run(tmp_path / "page.onnx", {}, outputs=["y"])


def test_a_crash_names_the_signal_and_the_next_run_works(runner):
    runner.run(RELU, {"x": np.zeros(1, np.float32)})
    threading.Timer(0.5, os.kill, (runner._child._process.pid, signal.SIGSEGV)).start()
    with pytest.raises(RunFailed, match="SIGSEGV") as failure:
        runner.run(ENDLESS, {"x": np.array(1, np.float32)})
    assert failure.value.signal == signal.SIGSEGV
    assert runner.run(RELU, {"x": np.array([-1], np.float32)})["y"].tolist() == [1]


def test_a_death_between_two_runs_is_said(runner):
    runner.run(RELU, {"x": np.zeros(1, np.float32)})
    os.kill(runner._child._process.pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match="SIGKILL"):
        runner.run(RELU, {"x": np.zeros(1, np.float32)})


def asked_of(runner, path, *values):
    return [runner.begin(path, {"x": np.array([value], np.float32)}) for value in values]


def relu_file(tmp_path):
    onnx.save(RELU, tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def test_what_is_put_off_begins_in_its_order_once_it_is_waited_for(runner, tmp_path):
    runner.puts_off, before = True, runner.sessions
    first, second, third = asked_of(runner, relu_file(tmp_path), -1, -2, -3)
    assert runner.sessions == before
    assert second.results()[0]["y"].tolist() == [2]
    assert first.found is not None
    assert (third.found, runner.sessions - before) == (None, 2)
    runner.puts_off = False
    (fourth,) = asked_of(runner, tmp_path / "relu.onnx", -4)
    assert fourth.results()[0]["y"].tolist() == [4]
    assert third.found is not None


def test_what_was_put_off_can_catch_up_beside_other_work(runner, tmp_path):
    runner.puts_off = True
    first, second = asked_of(runner, relu_file(tmp_path), -1, -2)
    runner.catch_up()
    runner.puts_off = False
    runner.catch_up()
    assert [one.results()[0]["y"].tolist() for one in (second, first)] == [[2], [1]]


def test_what_was_put_off_runs_in_the_next_child(runner, tmp_path):
    onnx.save(ENDLESS, tmp_path / "endless.onnx")
    runner.puts_off = True
    crashed = runner.begin(tmp_path / "endless.onnx", {"x": np.array(1, np.float32)})
    (later,) = asked_of(runner, relu_file(tmp_path), -2)
    runner.catch_up(crashed)
    os.kill(runner._child._process.pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match="SIGKILL"):
        crashed.results()
    runner.puts_off = False
    assert later.results()[0]["y"].tolist() == [2]


def test_what_was_put_off_fails_where_the_runner_is_closed(tmp_path):
    with OrtRunner(threads=1) as runner:
        runner.puts_off = True
        (asked,) = asked_of(runner, relu_file(tmp_path), -1)
    with pytest.raises(RunFailed, match="was closed"):
        asked.results()


def test_a_session_that_is_asked_for_again_is_not_dropped(runner, monkeypatch):
    """What is asked before an answer is there was sent without its model."""
    monkeypatch.setattr(ort_runner, "_MOST_KEPT", 2)

    def asked(number):
        text = f"g (float[2] x, float[2] c{number}) => (float[2] y) {{ y = Add(x, c{number}) }}"
        constants = {f"c{number}": np.full(2, number, np.float32)}
        return runner.ask(parsed(text).SerializeToString(), constants, [{"x": np.ones(2, np.float32)}])

    for order in [(0, 1), (2, 3, 0, 1, 0, 2, 3, 0), (0, 1, 2, 3, 0, 1), (3, 2, 1, 0, 0, 3, 3, 1)]:
        for number, run in [(number, asked(number)) for number in order]:
            assert run.results()[0]["y"].tolist() == [1 + number] * 2


def test_the_time_limit_stops_a_run_and_the_next_run_works():
    with OrtRunner(timeout_s=1.0, threads=1) as runner:
        start = time.monotonic()
        with pytest.raises(RunFailed, match="after 1 s") as failure:
            runner.run(ENDLESS, {"x": np.array(1, np.float32)})
        assert failure.value.timed_out
        assert time.monotonic() - start < 30
        assert runner.run(RELU, {"x": np.array([-1], np.float32)})["y"].tolist() == [1]


def test_the_memory_limit_is_an_error_and_not_the_end():
    model = parsed(
        """g (int64[1] n) => (float y) {
            t = ConstantOfShape<value: tensor = float[1] {1}>(n)  y = ReduceSum<keepdims = 0>(t) }"""
    )
    with OrtRunner(timeout_s=60, memory_bytes=1 << 30, threads=1) as runner:
        assert runner.run(model, {"n": np.array([1000])})["y"] == 1000
        with pytest.raises(RunFailed) as failure:
            runner.run(model, {"n": np.array([1 << 29])})
        assert not failure.value.timed_out
        assert runner.run(model, {"n": np.array([1000])})["y"] == 1000


def test_close_leaves_no_process_and_no_file():
    before = set(children_of(os.getpid()))
    runner = OrtRunner(threads=1)
    runner.run(RELU, {"x": np.zeros(1, np.float32)})
    folder = Path(runner._folder.path)
    assert sorted(p.name for p in folder.iterdir()) == [".in-use", "stderr.log"]
    runner.close()
    runner.close()
    assert set(children_of(os.getpid())) <= before
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="closed"):
        runner.run(RELU, {})


PARENT = """
import sys, numpy as np, onnx
from trtnorm_cli.evaluate import ort_runner
from trtnorm_cli.evaluate.ort_runner import OrtRunner
runner = OrtRunner(threads=1)
runner.run(onnx.load_from_string(bytes.fromhex(sys.argv[1])), {"x": np.array([1], np.float32)})
print(runner._folder.path, runner._child._process.pid, flush=True)
runner.run(onnx.load_from_string(bytes.fromhex(sys.argv[2])), {"x": np.array(1, np.float32)})
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_child_goes_with_its_parent(sent):
    models = [m.SerializeToString().hex() for m in (RELU, ENDLESS)]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *models], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        folder, child = parent.stdout.readline().split()
        time.sleep(0.5)
        parent.send_signal(sent)
        parent.wait(timeout=30)
    deadline = time.monotonic() + 30
    while (alive := is_running(int(child)) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Conv(11) node with name ''",
            "Could not find an implementation for Conv(11) node with name ''",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. Name:'' "
            "Status Message: /onnxruntime_src/onnxruntime/core/providers/cpu/math/element_wise_ops.h:583 "
            "void onnxruntime::BroadcastIterator::Append(ptrdiff_t, ptrdiff_t) axis == 1 || axis == largest was "
            "false.\n",
            "Non-zero status code returned while running Add node. Name:'' Status Message: "
            "axis == 1 || axis == largest was false.",
        ),
    ],
)
def test_messages_lose_prefix_and_source_path(raw, clean):
    assert cleaned(raw) == clean


def test_a_session_of_many_tensors_opens_in_time_that_grows_with_their_number():
    """ONNX Runtime looks for the memory of earlier tensors for each new one, unless it is told not to."""
    many = 1500
    nodes = "\n".join(f"y{i + 1} = Concat<axis = 0>(y{i}, one)" for i in range(many))
    model = parsed(f"g (float[1] y0, float[1] one) => (float[M] y{many}) {{ {nodes} }}").SerializeToString()

    def seconds(reuses: bool) -> float:
        options = session_options(threads=1, nodes=0 if reuses else many)
        start = time.process_time()
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return time.process_time() - start

    seconds(False)  # the first session also readies the library
    assert min(seconds(False), seconds(False)) < seconds(True) / 4
