"""BatchNormalizations behind a convolution and in front of a mean over the plane.

TensorRT for RTX scales, shifts and activates what the convolution gives in one kernel with that mean, which also brings the
channels to the front. Folded, the convolution leaves nothing for that kernel to do but the transposition, and the mean is one
more. In 36 networks of timm and torchvision that holds for the last pooling, unless height and width are fixed and a
convolution of many positions ends a residual block there, and for the squeeze behind an activation of a depthwise convolution.
Other squeezes seldom cost a kernel (docs/folding_and_kernels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.links import Links
from trtnorm_cli.onnx_model.stored import is_external

# Those that networks with such means have; TensorRT takes them into the kernel of the mean.
_ACTIVATIONS = frozenset({"Clip", "HardSwish", "LeakyRelu", "Relu"})


def batchnorms_before_means(model: onnx.ModelProto) -> frozenset[str]:
    """The outputs of the BatchNormalizations whose fold is likely to cost a launch for the mean behind them.

    None where there is no other BatchNormalization behind a convolution: a choice between all and nothing is none.
    """
    graph = _Graph.of(model.graph)
    foldable = graph.foldable()
    costly = {name for name, conv in foldable.items() if _costs_a_launch(name, conv, graph)}
    return frozenset(costly if len(costly) < len(foldable) else ())


def has_other_means(model: onnx.ModelProto) -> bool:
    """True where a mean over the plane reads another BatchNormalization behind a convolution, activated or not."""
    graph = _Graph.of(model.graph)
    for name, conv in graph.foldable().items():
        following = graph.links.only_reader(name)
        read = name if following is None or following.op_type not in _ACTIVATIONS else following.output[0]
        if any(graph.are_means(read)) and not _costs_a_launch(name, conv, graph):
            return True
    return False


@dataclass(frozen=True)
class _Graph:
    """A graph of images: who makes and reads its tensors, and whether their height or width is open."""

    links: Links
    has_open_plane: bool

    @staticmethod
    def of(graph: onnx.GraphProto) -> _Graph:
        return _Graph(Links.of(graph), any(map(_has_open_plane, graph.input)))

    def foldable(self) -> dict[str, onnx.NodeProto]:
        """The results of BatchNormalizations behind convolutions, with these."""
        found = {}
        for name, node in self.links.makers.items():
            if node.op_type != "BatchNormalization" or name != node.output[0]:
                continue
            maker = self.links.makers.get(node.input[0])
            if maker is not None and maker.op_type == "Conv":
                found[name] = maker
        return found

    def are_means(self, name: str) -> list[bool]:
        """For each reader whether it takes the mean over the plane. Who asks for a result of the graph does not."""
        means = [_is_mean_of_plane(node, name, self.links.constants) for node in self.links.readers.get(name, ())]
        return [*means, False] if name in self.links.results else means


def _has_open_plane(value: onnx.ValueInfoProto) -> bool:
    """True for an input of images whose height or width is open."""
    return any(not size.HasField("dim_value") for size in value.type.tensor_type.shape.dim[2:])


def _costs_a_launch(result: str, conv: onnx.NodeProto, graph: _Graph) -> bool:
    """True where a mean is all that reads ``result``, with a residual and an activation between them, or one of those that read
    the activation behind a depthwise ``conv``."""
    weight = graph.links.constants.get(conv.input[1])
    sizes = () if weight is None else tuple(weight.dims)
    following = graph.links.only_reader(result)
    if (
        following is not None
        and following.op_type == "Add"
        and (set(sizes[2:]) == {1} or graph.has_open_plane)
        and _adds_what_was_there(following, graph)
    ):
        result = following.output[0]
        following = graph.links.only_reader(result)
    if following is None or following.op_type not in _ACTIVATIONS:
        return all(graph.are_means(result) or [False])
    means = graph.are_means(following.output[0])
    is_depthwise = sizes[1:2] == (1,) and any(attribute.name == "group" and attribute.i > 1 for attribute in conv.attribute)
    return any(means) and (is_depthwise or all(means))


def _adds_what_was_there(addition: onnx.NodeProto, graph: _Graph) -> bool:
    """True where one operand is the result of an earlier block, not that of a second convolution."""
    makers = [graph.links.makers.get(name) for name in addition.input]
    return any(maker is not None and maker.op_type in _ACTIVATIONS for maker in makers)


def _is_mean_of_plane(node: onnx.NodeProto, of: str, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if node.domain not in DEFAULT_DOMAINS or node.input[0] != of:
        return False
    return node.op_type == "GlobalAveragePool" or (node.op_type == "ReduceMean" and _are_last(_axes(node, constants)))


def _axes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> Sequence[int]:
    """The axes that are reduced, as far as they are written down."""
    stated = constants.get(node.input[1]) if len(node.input) > 1 else None
    if stated is not None and not is_external(stated):
        return [int(axis) for axis in numpy_helper.to_array(stated).reshape(-1)]
    return next((attribute.ints for attribute in node.attribute if attribute.name == "axes"), ())


def _are_last(axes: Sequence[int]) -> bool:
    """True for two or more neighbouring axes behind those of batch and channels."""
    ordered, count = sorted(axes), len(axes)
    return count > 1 and ordered[0] in (2, -count) and ordered == list(range(ordered[0], ordered[0] + count))
