"""Random ways from one operator with weights to another, for property tests: text, weights and the shape at each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.models import batchnorm, random

# Enough values per channel that the largest is not small by chance: errors are measured against it.
BATCH = 12
Draw = Callable[[Any], Any]


def real(*shape: int, seed: int = 0) -> np.ndarray:
    return random(*shape, dtype=np.float64, seed=seed)


@dataclass
class Graph:
    """A graph under construction. ``at`` is the tensor at its end and ``shape`` its shape."""

    draw: Draw
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    at: str = ""
    shape: tuple[int, ...] = ()
    count: int = 0

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, *shape: int) -> str:
        name = self.name("x")
        self.inputs[name] = shape
        self.at, self.shape = name, shape
        return name

    def constant(self, value: Any) -> str:
        name = self.name("w")
        self.weights[name] = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        return name

    def node(self, text: str, shape: tuple[int, ...]) -> str:
        """Append ``text``, in which ``$`` stands for the tensor at the end."""
        name = self.name()
        self.lines.append(f"{name} = {text.replace('$', self.at)}")
        self.at, self.shape = name, shape
        return name

    def batchnorm(self) -> str:
        suffix = f"_{self.name()}"
        self.weights |= batchnorm(self.shape[1], np.float64, seed=self.draw(st.integers(0, 99)), suffix=suffix)
        parameters = ", ".join(name + suffix for name in ("gamma", "beta", "mu", "var"))
        return self.node(f"BatchNormalization($, {parameters})", self.shape)

    def text(self) -> str:
        dynamic = self.draw(st.booleans())
        inputs = ", ".join(
            f"double[{', '.join(['N' if dynamic else str(shape[0]), *map(str, shape[1:])])}] {name}"
            for name, shape in self.inputs.items()
        )
        outputs = ", ".join(f"double[] {name}" for name in dict.fromkeys([*self.outputs, self.at]))
        return f"g ({inputs}) => ({outputs}) {{ {' '.join(self.lines)} }}"


def ints(draw: Draw, low: int, high: int, count: int) -> list[int]:
    return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))


def convolution(g: Graph, padded: bool = True) -> None:
    """Conv from what is there, or from a new input."""
    if not g.at:
        rank = g.draw(st.integers(1, 3))
        g.input(BATCH if rank < 3 else 4, g.draw(st.integers(1, 4)), *[6] * rank)
    rank = len(g.shape) - 2
    groups = g.draw(st.sampled_from([d for d in (1, 2, 3) if g.shape[1] % d == 0]))
    kernel = [g.draw(st.integers(1, min(3, size))) for size in g.shape[2:]]
    strides, pads = ints(g.draw, 1, 2, rank), ints(g.draw, 0, 1 if padded else 0, 2 * rank)
    channels = groups * g.draw(st.integers(1, 4))
    weight = g.constant(real(channels, g.shape[1] // groups, *kernel))
    bias = f", {g.constant(real(channels))}" if g.draw(st.booleans()) else ""
    sizes = [(size + pads[i] + pads[rank + i] - kernel[i]) // strides[i] + 1 for i, size in enumerate(g.shape[2:])]
    attributes = f"group={groups}, strides={strides}, pads={pads}"
    g.node(f"Conv<{attributes}>($, {weight}{bias})", (g.shape[0], channels, *sizes))


def transposed_convolution(g: Graph) -> None:
    if not g.at:
        g.input(BATCH, 4, 3, 3)
    groups = g.draw(st.sampled_from([d for d in (1, 2) if g.shape[1] % d == 0]))
    per_group = g.draw(st.integers(1, 4))
    weight = g.constant(real(g.shape[1], per_group, 2, 2))
    bias = f", {g.constant(real(groups * per_group))}" if g.draw(st.booleans()) else ""
    sizes = [(size - 1) * 2 + 2 for size in g.shape[2:]]
    g.node(f"ConvTranspose<group={groups}, strides=[2, 2]>($, {weight}{bias})", (g.shape[0], groups * per_group, *sizes))


def gemm(g: Graph) -> None:
    if not g.at:
        g.input(BATCH * 4, g.draw(st.integers(1, 5)))
    columns, transposed = g.draw(st.sampled_from([2, 4, 6])), g.draw(st.integers(0, 1))
    weight = g.constant(real(*((columns, g.shape[1]) if transposed else (g.shape[1], columns))))
    bias = g.draw(st.sampled_from([None, (columns,), (1, columns), ()]))
    extra = "" if bias is None else f", {g.constant(real(*bias))}"
    numbers = f"alpha={g.draw(st.sampled_from([0.5, 1.0]))}, beta={g.draw(st.sampled_from([1.0, -2.0]))}, transB={transposed}"
    g.node(f"Gemm<{numbers}>($, {weight}{extra})", (g.shape[0], columns))


def matmul(g: Graph) -> None:
    """MatMul with a constant on either side, with or without a bias behind it on either side."""
    if not g.at:
        g.input(BATCH, *ints(g.draw, 3, 5, g.draw(st.integers(1, 2))))
    size = g.draw(st.sampled_from([2, 4, 6]))
    if len(g.shape) > 2 and g.draw(st.booleans()):
        g.node(f"MatMul({g.constant(real(size, g.shape[-2]))}, $)", (*g.shape[:-2], size, g.shape[-1]))
        bias = real(size, 1)
    else:
        g.node(f"MatMul($, {g.constant(real(g.shape[-1], size))})", (*g.shape[:-1], size))
        bias = real(size)
    if g.draw(st.booleans()):
        g.node(g.draw(st.sampled_from(["Add($, B)", "Add(B, $)", "Sub($, B)"])).replace("B", g.constant(bias)), g.shape)


PRODUCERS = (convolution, transposed_convolution, gemm, matmul)


def identity(g: Graph) -> None:
    g.node(g.draw(st.sampled_from(["Identity($)", "Dropout($)"])), g.shape)


def transpose(g: Graph) -> None:
    perm = [0, *(axis + 1 for axis in g.draw(st.permutations(range(len(g.shape) - 1))))]
    g.node(f"Transpose<perm={perm}>($)", tuple(g.shape[axis] for axis in perm))


def flatten_pixels(g: Graph) -> None:
    shape = (*g.shape[:2], math.prod(g.shape[2:]))
    g.node(f"Reshape($, {g.constant([0, shape[1], -1])})", shape)


def flatten_all(g: Graph) -> None:
    g.node("Flatten($)", (g.shape[0], math.prod(g.shape[1:])))


def merge_batch(g: Graph) -> None:
    """The first two axes become one, as for tokens; the shape is computed at run time by a second reader."""
    if len(g.shape) < 3:
        return
    shape = (g.shape[0] * g.shape[1], *g.shape[2:])
    if g.draw(st.booleans()):
        g.node(f"Reshape($, {g.constant([-1, *shape[1:]])})", shape)
        return
    whole, tail = g.name("s"), g.name("s")
    g.lines.append(f"{whole} = Shape({g.at}) {tail} = Slice({whole}, {g.constant([2])}, {g.constant([9])})")
    target = g.name("s")
    g.lines.append(f"{target} = Concat<axis=0>({g.constant([-1])}, {tail})")
    g.node(f"Reshape($, {target})", shape)


def unsqueeze(g: Graph) -> None:
    axis = g.draw(st.integers(2, len(g.shape)))
    g.node(f"Unsqueeze($, {g.constant([axis])})", (*g.shape[:axis], 1, *g.shape[axis:]))


def depth_to_space(g: Graph) -> None:
    if len(g.shape) != 4 or g.shape[1] % 4:
        return
    mode = g.draw(st.sampled_from(["CRD", "DCR"]))
    n, c, h, w = g.shape
    g.node(f'DepthToSpace<blocksize=2, mode="{mode}">($)', (n, c // 4, h * 2, w * 2))


def pixel_shuffle(g: Graph) -> None:
    """DepthToSpace as Reshape, Transpose, Reshape."""
    if len(g.shape) != 4 or g.shape[1] % 4:
        return
    n, c, h, w = g.shape
    g.node(f"Reshape($, {g.constant([-1, c // 4, 2, 2, h, w])})", (n, c // 4, 2, 2, h, w))
    g.node("Transpose<perm=[0, 1, 4, 2, 5, 3]>($)", (n, c // 4, h, 2, w, 2))
    g.node(f"Reshape($, {g.constant([-1, c // 4, h * 2, w * 2])})", (n, c // 4, h * 2, w * 2))


def channel_shuffle(g: Graph) -> None:
    if len(g.shape) < 3 or g.shape[1] % 2:
        return
    n, c, *rest = g.shape
    g.node(f"Reshape($, {g.constant([-1, 2, c // 2, *rest])})", (n, 2, c // 2, *rest))
    axes = list(range(3, len(g.shape)))
    g.node(f"Transpose<perm={[0, 2, 1, *axes]}>($)", (n, c // 2, 2, *rest))
    g.node(f"Reshape($, {g.constant([-1, c, *rest])})", (n, c, *rest))


def average(g: Graph) -> None:
    if len(g.shape) == 4:
        if g.draw(st.booleans()):
            g.node("GlobalAveragePool($)", (*g.shape[:2], 1, 1))
        else:
            kernel = [min(2, size) for size in g.shape[2:]]
            sizes = [size - k + 1 for size, k in zip(g.shape[2:], kernel, strict=True)]
            g.node(f"AveragePool<kernel_shape={kernel}>($)", (*g.shape[:2], *sizes))


def slice_channels(g: Graph) -> None:
    """A part of the channels; the rest may be read by somebody else."""
    if g.shape[1] < 3:
        return
    start = g.draw(st.integers(0, g.shape[1] - 2))
    end = g.draw(st.integers(start + 2, g.shape[1]))
    whole, shape = g.at, g.shape
    if start and g.draw(st.booleans()):
        other = g.node(f"Slice($, {g.constant([0])}, {g.constant([start])}, {g.constant([1])})", shape)
        g.outputs.append(other)
    g.at = whole
    g.node(f"Slice($, {g.constant([start])}, {g.constant([end])}, {g.constant([1])})", (shape[0], end - start, *shape[2:]))


def split_channels(g: Graph) -> None:
    if g.shape[1] < 3:
        return
    first = g.draw(st.integers(2, g.shape[1] - 1))
    one, two = g.name(), g.name()
    g.lines.append(f"{one}, {two} = Split<axis=1>({g.at}, {g.constant([first, g.shape[1] - first])})")
    if g.draw(st.booleans()):
        g.outputs.append(two)
    g.at, g.shape = one, (g.shape[0], first, *g.shape[2:])


def permute_channels(g: Graph) -> None:
    order = g.draw(st.permutations(range(g.shape[1])))
    g.node(f"Gather<axis=1>($, {g.constant(order)})", g.shape)


def join_branch(g: Graph) -> None:
    """Concat with another convolution of the same plane."""
    if len(g.shape) != 4:
        return
    here, shape = g.at, g.shape
    g.input(shape[0], 2, *shape[2:])
    extra = g.draw(st.integers(1, 3))
    other = g.node(f"Conv($, {g.constant(real(extra, 2, 1, 1))})", (shape[0], extra, *shape[2:]))
    pair = (here, other) if g.draw(st.booleans()) else (other, here)
    g.node(f"Concat<axis=1>({', '.join(pair)})", (shape[0], shape[1] + extra, *shape[2:]))


def add_branch(g: Graph) -> None:
    """Add another convolution of the same shape."""
    if len(g.shape) != 4:
        return
    here, shape = g.at, g.shape
    g.input(shape[0], 2, *shape[2:])
    other = g.node(f"Conv($, {g.constant(real(shape[1], 2, 1, 1))})", shape)
    g.node(f"{g.draw(st.sampled_from(['Add', 'Sub', 'Sum']))}({here}, {other})", shape)


def negate(g: Graph) -> None:
    g.node("Neg($)", g.shape)


def rectify(g: Graph) -> None:
    g.node(g.draw(st.sampled_from(["Relu($)", "LeakyRelu<alpha=0.1>($)"])), g.shape)


def largest(g: Graph) -> None:
    if len(g.shape) == 4 and min(g.shape[2:]) >= 2:
        g.node("MaxPool<kernel_shape=[2, 2], strides=[2, 2]>($)", (*g.shape[:2], g.shape[2] // 2, g.shape[3] // 2))


def pad(g: Graph) -> None:
    if len(g.shape) != 4 or min(g.shape[2:]) < 2:
        return
    mode, pads = g.draw(st.sampled_from(["constant", "reflect", "edge"])), [0, 0, 1, 0, 0, 0, 1, 1]
    n, c, h, w = g.shape
    g.node(f'Pad<mode="{mode}">($, {g.constant(pads)})', (n, c, h + 2, w + 1))


def enlarge(g: Graph) -> None:
    if len(g.shape) == 4:
        n, c, h, w = g.shape
        scales = g.constant(np.array([1, 1, 2, 2], np.float32))
        g.node(f'Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">($, "", {scales})',
               (n, c, h * 2, w * 2))  # fmt: skip


def space_to_depth(g: Graph) -> None:
    if len(g.shape) == 4 and not (g.shape[2] % 2 or g.shape[3] % 2):
        n, c, h, w = g.shape
        g.node("SpaceToDepth<blocksize=2>($)", (n, c * 4, h // 2, w // 2))


def mean(g: Graph) -> None:
    if len(g.shape) > 2:
        axis = g.draw(st.integers(2, len(g.shape) - 1))
        g.node(f"ReduceMean<axes=[{axis}], keepdims=0>($)", (*g.shape[:axis], *g.shape[axis + 1 :]))


LAYOUT = (
    identity, transpose, flatten_pixels, flatten_all, merge_batch, unsqueeze, depth_to_space, pixel_shuffle, channel_shuffle,
    average, slice_channels, split_channels, permute_channels, join_branch, add_branch, negate, rectify, largest, pad, enlarge,
    space_to_depth, mean,
)  # fmt: skip
