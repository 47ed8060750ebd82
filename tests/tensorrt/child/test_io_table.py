"""Inputs and outputs of the compiled engine, as the builder's log writes them."""

from __future__ import annotations

import pytest

from tests.models import parse
from tests.tensorrt.builds import built
from trtnorm_cli.tensorrt.child.io_table import read_io_table

MESSAGE = """Layers:
Name: a, LayerType: kgen, Inputs: [], Constants: [], Outputs: [], TacticName: t, StreamId: 0, Metadata:

I/O Tensors:
 Name: x, y: 1, IOMode: Input, DataType: BFloat16, Dimensions: [-1,2], Location: Device, IsShapeInferenceIO: false, \
ProfileInfo: [ { MinShape: [1,2], OptShape: [2,2], MaxShape: [4,2], Format: linear }, { MinShape: [8,2], OptShape: [8,2], \
MaxShape: [8,2], Format: linear }]
 Name: s, IOMode: Output, DataType: Int64, Dimensions: [], Location: Host, IsShapeInferenceIO: true, \
ProfileInfo: [ { Format: l }]

Engine Metadata:
 Multi-Device: Disabled"""


def test_the_table():
    x, s = (binding.to_json() for binding in read_io_table(MESSAGE))
    assert x == {
        "name": "x, y: 1", "mode": "input", "dtype": "BF16", "shape": [-1, 2], "location": "device",
        "profiles": [
            {"min": [1, 2], "opt": [2, 2], "max": [4, 2]}, {"min": [8, 2], "opt": [8, 2], "max": [8, 2]}],
    }  # fmt: skip
    assert (s["mode"], s["dtype"], s["shape"], s["location"], s["profiles"]) == ("output", "INT64", [], "host", [{}])


def test_a_message_without_it():
    assert read_io_table("Layers:\nName: a\n\n") == ()


@pytest.mark.rtx
@pytest.mark.parametrize(("dtype", "expected"), [
    ("float", "FLOAT"), ("float16", "HALF"), ("bfloat16", "BF16"), ("int64", "INT64"), ("bool", "BOOL"), ("int32", "INT32"),
    ("double", "FLOAT"),
])  # fmt: skip
def test_the_types_of_the_real_one(tmp_path, dtype, expected):
    model = parse(f"g ({dtype}[2, 3] x) => ({dtype}[] y) {{ y = Transpose(x) }}")
    result = built(model, tmp_path)
    assert [(b.name, b.mode, b.dtype, list(b.shape)) for b in result.bindings] == [
        ("x", "input", expected, [2, 3]), ("y", "output", expected, [3, 2])
    ]  # fmt: skip
    assert [entry.dtype for entry in (*result.inputs, *result.outputs)] == [expected] * 2
