"""What a command imports before it begins to work: imports take longer than the rewriting of a small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved

GRAPH = """g (float[N, 3, 16, 16] x) => (float[N, 4, 16, 16] z) {
  y = Conv<pads = [1, 1, 1, 1]>(x, w)
  z = BatchNormalization(y, gamma, beta, mu, var)
}"""


def loaded_by(arguments: list[str]) -> set[str]:
    """The modules that one command line loads."""
    code = (
        "import json, sys\nfrom trtnorm_cli.cli import run\n"
        f"assert run({arguments!r}) == 0\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture
def model(tmp_path):
    return saved(parse(GRAPH, {"w": random(4, 3, 3, 3), **batchnorm(4)}), tmp_path / "m.onnx")


def test_a_rewriting_imports_only_what_it_works_with(model, tmp_path):
    loaded = loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx")])
    # sympy itself is there in name, and its first part that would be run is not.
    assert not loaded & {"sympy.core", "pydantic", "yaml", "onnxruntime", "polygraphy", "torch", "trtnorm_cli.pipeline"}
    assert not [name for name in loaded if name.startswith(("trtnorm_cli.compare.", "trtnorm_cli.tensorrt.child"))]


def test_a_profile_is_read_with_pydantic(model, tmp_path):
    """The other side of the test above: it would not notice a name that no module has."""
    (tmp_path / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    loaded = loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx"), "-p", str(tmp_path / "cfg.yaml")])
    assert {"pydantic", "yaml"} <= loaded
    assert "sympy.core" not in loaded


@pytest.mark.rtx
def test_what_is_done_while_tensorrt_builds_is_imported_then(model, tmp_path):
    (tmp_path / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    arguments = ["build", str(model), "-p", str(tmp_path / "cfg.yaml"), "-o", str(tmp_path / "out.engine"), "-q"]
    code = (
        "import json, sys\nfrom trtnorm_cli import pipeline\nfrom trtnorm_cli.cli import run\n"
        "known, make = [], pipeline.make\n"
        "def making(*given):\n    known.append(sorted(sys.modules))\n    return make(*given)\n"
        f"pipeline.make = making\nassert run({arguments!r}) == 0\nknown.append(sorted(sys.modules))\n"
        "print(json.dumps(known), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    before, after = (set(names) for names in json.loads(done.stderr.splitlines()[-1]))
    for_later = ("trtnorm_cli.compare.", "trtnorm_cli.lowering.", "trtnorm_cli.report.build", "rich")
    assert not [name for name in before if name.startswith(for_later)]
    assert {"trtnorm_cli.compare.session", "trtnorm_cli.report.build"} <= after
    assert not [name for name in after if name.startswith("trtnorm_cli.lowering.")]  # no precision was asked for


@pytest.mark.parametrize("first", ["", "import sympy\n"], ids=["late", "there already"])
def test_symbolic_dimensions_are_computed_as_ever(first):
    if not hasattr(pytest.importorskip("onnx_ir").SymbolicDim, "evaluate"):
        pytest.skip("this onnx-ir does not compute with symbolic dimensions")
    code = (
        f"{first}import sys\nfrom trtnorm_cli.onnx_model.late_imports import import_onnx_ir\nimport_onnx_ir()\n"
        f"assert ('sympy.core' in sys.modules) is {bool(first)}\n"
        "import onnx_ir\nn = onnx_ir.SymbolicDim('n')\n"
        "assert (n * 2 + 1).value == '2*n + 1', (n * 2 + 1).value\n"
        "assert onnx_ir.SymbolicDim('max(n, 3)').evaluate({'n': 2}) == 3\n"
        "import sympy\nassert sympy.sqrt(4) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_model_that_stays_needs_nothing_of_proofs_and_of_folding(tmp_path):
    model = saved(parse("g (float[N, 4] x) => (float[N, 4] z) { y = Relu(x) z = Neg(y) }"), tmp_path / "m.onnx")
    loaded = loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx")])
    absent = {"onnxscript", "onnx.reference", "pydantic", "trtnorm_cli.evaluate.float64", "trtnorm_cli.rewrite.proof.check"}
    assert not loaded & absent


SIZES = """g (float[N, 4, 6] x) => (float[N, 24] z) {
  s = Shape(x) n = Gather<axis = 0>(s, zero) u = Unsqueeze(n, axes) c = Concat<axis = 0>(u, rest) z = Reshape(x, c) }"""
COMPUTED = ["Shape", "Gather", "Unsqueeze", "Concat", "Reshape"]


@pytest.mark.parametrize(("text", "asks_library", "kept"), [
    (SIZES.replace("[N,", "[2,"), False, ["Reshape"]), (SIZES, False, COMPUTED),
    (SIZES.replace("z = Reshape(x", "l = CastLike(x, x) z = Reshape(l"), True, COMPUTED),
])  # fmt: skip
def test_sizes_are_folded_without_the_libraries_that_could_do_all_else(tmp_path, text, asks_library, kept):
    """Every other export computes sizes. Of onnxscript at most the folding is there, and it is not left in ``sys.modules``."""
    values = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([24])}
    model = saved(parse(text, values), tmp_path / "m.onnx")
    loaded = loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx"), "--quiet"])
    assert ("trtnorm_cli.onnx_model.fold_library" in loaded) == asks_library
    assert not [name for name in loaded if name.startswith(("onnxscript", "onnx.reference", "onnxruntime"))]
    assert [node.op_type for node in onnx.load(str(tmp_path / "out.onnx")).graph.node] == kept


def test_the_libraries_can_be_imported_after_their_parts():
    code = (
        "from trtnorm_cli.onnx_model.late_imports import import_folder, import_onnx_ir\nimport_onnx_ir()\n"
        "own = import_folder()\nimport onnxscript.optimizer, onnx.reference\n"
        "assert onnxscript.optimizer._constant_folding is not own and onnxscript.optimizer.optimize\n"
        "assert onnx.reference.ops.load_op('', 'Add', 18) and onnx.reference.ReferenceEvaluator\n"
        "assert import_folder() is onnxscript.optimizer._constant_folding\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_the_kernels_leave_is_evaluated_with_the_reference_implementation(tmp_path):
    """The other side of the test above."""
    model = saved(parse("g (float[4] x) => (float[4] z) { e = Erf(w) z = Mul(x, e) }", {"w": random(4)}), tmp_path / "m.onnx")
    assert "onnx.reference.ops" in loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx")])
    assert [node.op_type for node in onnx.load(str(tmp_path / "out.onnx")).graph.node] == ["Mul"]


def test_python_looks_for_garbage_seldom_and_takes_nothing_apart_at_the_end(model, tmp_path):
    code = (
        "import atexit, gc, sys, threading, time\nfrom trtnorm_cli.cli import main\n"
        "class Kept:\n    def __del__(self): print('taken apart', file=sys.stderr)\n"
        "kept = Kept()\n"
        "def late():\n    time.sleep(1)\n    print('waited for', end=' ', file=sys.stderr)\n"
        "def tell(): print(sum(s['collections'] for s in gc.get_stats()), file=sys.stderr)\n"
        "atexit.register(tell)\nthreading.Timer(0, late).start()\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\npool.submit(int).result()\n"  # its thread waits for more
        f"main(['rewrite', {str(model)!r}, '-o', {str(tmp_path / 'out.onnx')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    waited, collections = done.stderr.splitlines()[-1].rsplit(" ", 1)
    assert waited.endswith("waited for")
    assert int(collections) <= 60  # of which most are those of the imports before ``main``
    assert "taken apart" not in done.stderr


LEAVING = """
import atexit, os, signal, sys, threading, time
from trtnorm_cli import cli
what = sys.argv[1]
atexit.register(lambda: print("registered", flush=True))
if what == "interrupt":
    threading.Timer(0, time.sleep, [3]).start()
    threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT]).start()
elif what == "watched":
    sys.setprofile(lambda *event: None)
elif what == "closed":
    sys.stdout = None
print("said", end="", file=sys.stdout or sys.stderr)
try:
    cli.leave(3)
finally:
    print(", taken apart", end=" ")
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "saidregistered\n"),
        ("interrupt", "saidregistered\n"),
        ("closed", "said"),
        ("watched", "said, taken apart registered\n"),
    ],
)
def test_the_end_loses_nothing(what, said):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", LEAVING, what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert (done.returncode, done.stdout + done.stderr) == (3, said)


def test_the_modules_of_proofs_are_loaded_for_a_change(model, tmp_path):
    """The other side of the test above."""
    loaded = loaded_by(["rewrite", str(model), "-o", str(tmp_path / "out.onnx")])
    assert {"trtnorm_cli.evaluate.float64", "trtnorm_cli.rewrite.proof.check"} <= loaded
