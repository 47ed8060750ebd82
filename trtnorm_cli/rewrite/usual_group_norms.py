"""GroupNorms that TensorRT's own normalizes in two kernels.

One of the two clears memory for the statistics of the other, which reads and writes all data. Along rows there is one kernel,
whose rows lie apart behind a convolution; there are two where rows are short. So rows pay while the launch that they save takes
longer than to read data that lie apart. It is so between convolutions, with 64 channels or more, a multiple of 32, in groups of
two or of four and more. With other numbers, and where the result is added to a residual branch, TensorRT for RTX's own takes up
to three kernels more (docs/normalization_kernels.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.links import Links
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types

_FEWEST_CHANNELS, _CHANNELS_TOGETHER = 64, 32
_UNUSUAL_GROUPS = (1, 3)  # channels of each
# What restores, scales and shifts the data behind an InstanceNormalization of groups.
_BEHIND = ("Reshape", "Mul", "Add")
_POOLING = frozenset({"AveragePool", "MaxPool"})


@dataclass(frozen=True)
class GroupNorm:
    """A GroupNorm of several groups: its data, their type, the number of groups, and what gives its result.

    ``names`` are the outputs by which changes of it are known: that of the node that normalizes, and the result's.
    ``is_between_convolutions`` is true where a convolution, an addition or a pooling gives the data, and convolutions or
    poolings alone read the result, activated by Relu or SiLU or as it is. ``is_added`` is true where an addition alone does.
    """

    data: str
    type: TensorType
    groups: int
    names: tuple[str, str]
    is_between_convolutions: bool
    is_added: bool

    @property
    def has_usual_channels(self) -> bool:
        """True for data of float32 and known sizes, in such a number of channels that TensorRT's own takes two kernels."""
        if self.type.dtype != onnx.TensorProto.FLOAT or not self._sizes:
            return False
        channels = self._sizes[0]
        if channels < _FEWEST_CHANNELS or channels % _CHANNELS_TOGETHER or channels % self.groups:
            return False
        return channels // self.groups not in _UNUSUAL_GROUPS

    @property
    def samples(self) -> int | str | None:
        """The number of samples, or its symbol; None where it has none."""
        return self.type.shape[0] if self.type.shape else None

    @property
    def row(self) -> int:
        """The number of values of a group; zero where it is open."""
        return math.prod(self._sizes) // self.groups if self._sizes else 0

    @property
    def _sizes(self) -> list[int]:
        """The sizes of one sample; none where one of them is open."""
        shape = self.type.shape or ()
        sizes = [size for size in shape[1:] if isinstance(size, int)]
        return sizes if len(shape) > 2 and len(sizes) == len(shape) - 1 else []


def group_norms(model: onnx.ModelProto) -> Iterator[GroupNorm]:
    """The GroupNorms of several groups, each a GroupNormalization, or Reshapes around an InstanceNormalization.

    Where the Reshape takes samples for groups as well, it is none.
    """
    links, types = Links.of(model.graph), declared_types(model)
    unknown = TensorType(0, None)
    for node in model.graph.node:
        if node.domain not in DEFAULT_DOMAINS:
            continue
        data, groups, result = "", 0, node.output[0]
        if node.op_type == "GroupNormalization":
            data, groups = node.input[0], _attribute(node, "num_groups")
        elif node.op_type == "InstanceNormalization" and node.input[1] in links.constants:
            view = links.makers.get(node.input[0])
            if view is not None and view.op_type == "Reshape" and not _mixes_samples(view, types):
                data, groups = view.input[0], math.prod(links.constants[node.input[1]].dims)
                result = _restored(result, links)
        if groups > 1:
            is_added = [reader.op_type for reader in links.readers.get(result, ())] == ["Add"]
            is_between = _is_between_convolutions(data, result, links)
            yield GroupNorm(data, types.get(data, unknown), groups, (node.output[0], result), is_between, is_added)


def _mixes_samples(view: onnx.NodeProto, types: Mapping[str, TensorType]) -> bool:
    """True where the Reshape ``view`` gives another number of samples than it reads. A scale has a fixed length, so that an
    open number of samples cannot be part of it."""
    shapes = [types[name].shape for name in (view.input[0], view.output[0]) if name in types]
    return len({shape[0] for shape in shapes if shape and isinstance(shape[0], int)}) > 1


def _restored(normalized: str, links: Links) -> str:
    """The output of what restores, scales and shifts the data that are ``normalized``."""
    name = normalized
    for operator in _BEHIND:
        following = links.readers.get(name, ())
        if len(following) != 1 or following[0].op_type != operator:
            continue
        if operator != "Reshape" and links.constants.keys().isdisjoint(following[0].input):
            break
        name = following[0].output[0]
    return name


def _is_between_convolutions(data: str, result: str, links: Links) -> bool:
    maker = links.makers.get(data)
    is_given = maker is not None and (maker.op_type == "Add" or _is_convolution_or_pooling(maker))
    return is_given and _is_convolved(result, links)


def _is_convolved(result: str, links: Links) -> bool:
    """True where convolutions or poolings alone read ``result``, activated by Relu or SiLU or as it is."""
    following = links.readers.get(result, ())
    operators = sorted(node.op_type for node in following)
    if operators == ["Relu"]:
        following = links.readers.get(result := following[0].output[0], ())
    elif operators == ["Mul", "Sigmoid"]:
        product, gate = sorted(following, key=lambda node: node.op_type)
        if gate.output[0] not in product.input or len(links.readers.get(gate.output[0], ())) > 1:
            return False
        following = links.readers.get(result := product.output[0], ())
    return bool(following) and result not in links.results and all(map(_is_convolution_or_pooling, following))


def _is_convolution(node: onnx.NodeProto) -> bool:
    """True for a convolution in which every channel takes part in every result."""
    return node.op_type == "Conv" and _attribute(node, "group") == 1


def _is_convolution_or_pooling(node: onnx.NodeProto) -> bool:
    return node.op_type in _POOLING or _is_convolution(node)


def _attribute(node: onnx.NodeProto, name: str) -> int:
    """A whole number, which is one where it is not given."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 1)
