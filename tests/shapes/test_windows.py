"""Windows of every kernel, stride, dilation and padding, held against what ONNX Runtime computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.models import parse, random
from tests.shapes.runs import agree
from trtnorm_cli.shapes.propagate import propagate

KERNELS = (1, 2, 3)
LENGTHS = range(6, 13)


def windows() -> Iterator[tuple[int, str]]:
    """A kernel's size, and attributes of its window."""
    for kernel, stride, dilation in itertools.product(KERNELS, (1, 2, 3), (1, 2)):
        window = f"kernel_shape=[{kernel}], strides=[{stride}], dilations=[{dilation}]"
        for padding in itertools.product(range(min(kernel, 2)), repeat=2):
            yield kernel, f"{window}, pads={list(padding)}"
        yield kernel, f'{window}, auto_pad="VALID"'
        if dilation == 1 and kernel >= stride:
            yield from ((kernel, f'{window}, auto_pad="SAME_{side}"') for side in ("UPPER", "LOWER"))


def bodies() -> Iterator[tuple[str, str]]:
    for kernel, window in windows():
        yield "Conv", f"Conv<{window}>(x, w{kernel})"
        yield "MaxPool", f"MaxPool<{window}>(x)"
        if "dilations=[1]" in window:
            yield "AveragePool", f"AveragePool<{window.replace(', dilations=[1]', '')}>(x)"
        if "auto_pad" not in window:
            yield "ceil", f"MaxPool<{window}, ceil_mode=1>(x)"
            yield "ConvTranspose", f"ConvTranspose<{window}>(x, t{kernel})"
            yield "further", f"ConvTranspose<{window}, output_padding=[{window.count('strides=[2]')}]>(x, t{kernel})"
            yield "stated", f"ConvTranspose<{window}, output_shape=[3]>(x, t{kernel})"
        elif "SAME" in window:
            yield "ConvTranspose", f"ConvTranspose<{window}>(x, t{kernel})"


@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool", "ceil", "ConvTranspose", "further", "stated"])
def test_windows_are_counted_as_they_are_run(kind):
    nodes = [f"y{number} = {body}" for number, body in enumerate(body for one, body in bodies() if one == kind)]
    weights = {f"w{kernel}": random(4, 2, kernel) for kernel in KERNELS} | {f"t{k}": random(2, 4, k) for k in KERNELS}
    used = {name: value for name, value in weights.items() if any(f", {name})" in node for node in nodes)}
    model = parse(f"g (float[N, 2, L] x) => (float[N, ?, ?] y0) {{ {' '.join(nodes)} }}", used)
    sizes = propagate(model).tensors
    assert [node for number, node in enumerate(nodes) if sizes[f"y{number}"].size is None] == []
    assert all(agree(model, *({"N": 2, "L": length} for length in LENGTHS)))
    assert len(nodes) > len(KERNELS) ** 2


def test_what_short_windows_spread_to_is_not_known_where_onnxruntime_and_onnx_differ():
    body = 'y = ConvTranspose<strides=[3], auto_pad="SAME_UPPER">(x, t)'
    model = parse(f"g (float[N, 2, L] x) => (float[N, ?, ?] y) {{ {body} }}", {"t": random(2, 4, 2)})
    assert [str(size) for size in propagate(model).tensors["y"].shape] == ["N", "4", "None"]


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize("body", ["Conv<dilations=[2], pads=[0, 1]>(x, w)", "MaxPool<kernel_shape=[5], pads=[0, 1]>(x)"])
def test_a_window_that_does_not_fit_is_known_before(body, length):
    model = parse(
        f"g (float[1, 2, L] x) => (float[1, ?, ?] y) {{ y = {body} }}", {"w": random(4, 2, 3)} if "w)" in body else {}
    )
    (demand,) = propagate(model).constraints
    assert demand.holds({"L": length}) == (length >= 4)
