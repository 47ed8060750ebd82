"""Scales behind a convolution whose channels are spread over many axes for a softmax.

Optical flow and stereo networks predict the weights with which each pixel is made of its neighbours, and scale them before the
softmax (convex upsampling: Teed & Deng 2020, "RAFT"):

    mask = softmax(reshape(0.25 · Conv(x), [N, 1, 9, 8, 8, H, W]), axis 2)

TensorRT for RTX scales in the kernel of the softmax, which also brings the channels to the front. With the scale in the
convolution's weights nothing is left for it there, and a transposition is a kernel of its own: 12 more in RAFT. Where there are
up to six axes, the softmax reads the channels where the convolution left them, scaled or not (docs/folding_and_kernels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

_MOST_AXES = 6
# These read no values.
_SIZES = frozenset({"Shape", "Size"})
_SCALES = frozenset({"BatchNormalization", "Div", "Mul"})
_Makers = Mapping[str, onnx.NodeProto]


def scales_before_spread_softmaxes(model: onnx.ModelProto) -> frozenset[str]:
    """The outputs of scales whose fold into the convolution before them is likely to cost a launch for the softmax."""
    nodes = [node for node in model.graph.node if node.domain in DEFAULT_DOMAINS]
    makers: _Makers = {output: node for node in nodes for output in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input if node.op_type not in _SIZES else ():
            readers.setdefault(name, []).append(node)
    constants = {tensor.name for tensor in model.graph.initializer}
    lengths = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 1}
    results = {value.name for value in model.graph.output}

    def is_behind_a_convolution(scale: onnx.NodeProto) -> bool:
        is_convolved = any(name in makers and makers[name].op_type == "Conv" for name in scale.input)
        return scale.op_type in _SCALES and is_convolved and not constants.isdisjoint(scale.input)

    found = set[str]()
    for node in nodes:
        if node.op_type != "Reshape" or len(node.input) < 2 or _axes(node.input[1], makers, lengths) <= _MOST_AXES:
            continue
        scaled, spread = node.input[0], node.output[0]
        is_read_here_only = len(readers[scaled]) == 1 and results.isdisjoint((scaled, spread))
        is_for_softmax = [reader.op_type for reader in readers.get(spread, ())] == ["Softmax"]
        if is_read_here_only and is_for_softmax and scaled in makers and is_behind_a_convolution(makers[scaled]):
            found.add(scaled)
    return frozenset(found)


def _axes(shape: str, makers: _Makers, lengths: Mapping[str, int]) -> int:
    """How many axes a tensor of that ``shape`` has, or fewer where that is not written down."""
    if shape in lengths:
        return lengths[shape]
    maker = makers.get(shape)
    parts: Sequence[str] = maker.input if maker is not None and maker.op_type == "Concat" else ()
    return sum(lengths.get(part, 1) for part in parts)
