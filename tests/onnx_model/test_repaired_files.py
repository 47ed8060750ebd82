"""docs/repaired_files.md row by row: what ONNX Runtime runs is not refused, and what is mended computes what was meant."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.repaired_file_list import FILES, BrokenFile, sound_model
from benchmarks.repaired_files import PAGE, line, outputs_of, row, tensorrt_says
from tests.models import loaded, parse, saved
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.load import load_model

ROWS = [(section, file) for section, files in FILES.items() for file in files]
# Values that contradict each other, of which ONNX Runtime takes one without a word.
AMBIGUOUS = ("values in two fields, not the same", "an initializer twice, differently")


def documented(section: str, name: str) -> str:
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return next(text for text in part.splitlines() if text.startswith(f"| {name} |"))


def as_said(row: str) -> str:
    """A row, without the words of the checker where that is of another onnx than the page's."""
    if f"Measured with onnx {onnx.__version__}," in PAGE.read_text(encoding="utf-8"):
        return row
    name, _, *rest = row.split(" | ")
    return re.sub(r"checker's \(\d+\)", "checker's (…)", " | ".join((name, *rest)))


@pytest.mark.parametrize(("section", "file"), ROWS, ids=[f"{section}: {file.name}" for section, file in ROWS])
def test_a_row_is_what_reading_the_file_gives(section, file: BrokenFile, tmp_path):
    found = row(file, tmp_path)
    wanted = documented(section, file.name)
    assert as_said(line(file, found, wanted.split(" | ")[3])) == as_said(wanted)
    if found.runtime == "runs":
        assert found.mended is not None or file.name in AMBIGUOUS
    if found.mended is not None and found.trtnorm.startswith("mended"):
        onnx.checker.check_model(found.mended)
        wanted = file.model() if found.runtime == "runs" else sound_model(file.graph, file.opset)
        for got, value in zip(outputs_of(found.mended), outputs_of(wanted), strict=True):
            np.testing.assert_array_equal(got, value)


@pytest.mark.rtx
@pytest.mark.slow
@pytest.mark.parametrize(("section", "file"), ROWS, ids=[f"{section}: {file.name}" for section, file in ROWS])
def test_tensorrt_says_what_the_page_says(section, file: BrokenFile):
    assert tensorrt_says(file.model().SerializeToString()) == documented(section, file.name).split(" | ")[3]


def test_every_row_stands_in_the_page_once():
    lines = [text for text in PAGE.read_text(encoding="utf-8").splitlines() if text.startswith("| ")]
    assert len(lines) == len(ROWS) + len(FILES)


def test_a_sound_file_is_not_touched(tmp_path):
    for ir in (4, 8):
        model = sound_model(ir=ir)
        read = loaded(model, tmp_path)
        assert (read.proto, read.warnings, read.runs_unmended) == (model, (), True)


def test_nodes_are_put_in_order_with_what_their_branches_read(tmp_path):
    made = parse(
        """g (float[3] x, bool b) => (float[3] y) {
            y = If (b) <then_branch = t () => (float[3] p) { p = Neg (late) }, else_branch = e () => (float[3] q) { q = Abs (r) r = Exp (late) }>
            late = Relu (x)
        }"""  # noqa: E501
    )
    read = loaded(made, tmp_path).proto
    assert [node.op_type for node in read.graph.node] == ["Relu", "If"]
    branches = [[node.op_type for node in attribute.g.node] for attribute in read.graph.node[1].attribute]
    assert branches == [["Neg"], ["Exp", "Abs"]]


def test_a_cycle_is_refused(tmp_path):
    made = parse("g (float[3] x) => (float[3] y) { a = Add(x, b) b = Relu(a) y = Neg(b) }")
    with pytest.raises(ModelError, match="topologically sorted") as caught:
        load_model(saved(made, tmp_path / "m.onnx"))
    assert caught.value.exit_code == 3


def test_weights_listed_as_inputs_before_ir_version_4_are_no_inputs(tmp_path):
    made = sound_model(ir=3)
    made.graph.input.append(onnx.helper.make_tensor_value_info("beta", 1, [4]))
    read = loaded(made, tmp_path).proto
    assert [value.name for value in read.graph.input] == ["x"]
    assert read.ir_version >= 4


def test_constants_of_one_name_are_no_reason_to_mend(tmp_path):
    made = parse(
        """g (float[3] x) => (float[3] y) {
            one = Constant<value_float = 1.0>() two = Constant<value_float = 2.0>() a = Mul(x, two) y = Add(a, one)
        }"""
    )
    for node in made.graph.node[:2]:
        node.name = "n"
    x = np.ones(3, np.float32)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 3 * x)
    assert loaded(made, tmp_path).runs_unmended


def test_nodes_of_one_name_in_a_branch_are_named_apart(tmp_path):
    made = parse(
        """g (float[3] x, bool b) => (float[3] y) {
            y = If (b) <then_branch = t () => (float[3] p) { a = Neg (x) p = Abs (a) },
                        else_branch = e () => (float[3] q) { q = Exp (x) }>
        }"""
    )
    for node in made.graph.node[0].attribute[0].g.node:
        node.name = "n"
    read = loaded(made, tmp_path)
    assert [node.name for node in read.proto.graph.node[0].attribute[0].g.node] == ["n", "n_2"]
    assert not read.runs_unmended
