"""Layers that read or write by index: gather, scatter, one-hot, reverse sequence."""

from __future__ import annotations

from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext


def gather(layer: LayerContext) -> str:
    """``IGatherLayer`` in its three modes.

    An index outside the data, for which TensorRT stores zero, makes ONNX Runtime fail. A negative index counts from the back,
    which TensorRT leaves undefined for a dimension known at run time only.
    """
    mode, batch = layer.handle.mode.name, int(layer.handle.num_elementwise_dims)
    data, indices, onnx_type = layer.value(0), layer.int64(1), layer.tensor(0).onnx_type
    axis = int(layer.handle.axis)
    if mode == "DEFAULT":
        if batch == 0:
            return layer.move("Gather", [data, indices], onnx_type, axis=axis)
        return _batched_gather(layer, data, indices, axis)
    if mode == "ELEMENT":
        return layer.move("GatherElements", [data, indices], onnx_type, axis=axis)
    if mode == "ND":
        return layer.move("GatherND", [data, indices], onnx_type, batch_dims=batch)
    raise layer.layer.refused(f"no translation of the gather mode {mode}")


def _batched_gather(layer: LayerContext, data: str, indices: str, axis: int) -> str:
    """out[b, …, i, …] = data[b, …, indices[b, i], …]: a GatherND with the axis moved next to the batch."""
    rank, index_rank, onnx_type = layer.rank(0), layer.rank(1), layer.tensor(0).onnx_type
    if layer.shape(0)[0] != layer.shape(1)[0]:
        raise layer.layer.refused("one elementwise dimension that is broadcast, or known at run time only")
    rest = [d for d in range(1, rank) if d != axis]
    moved = layer.move("Transpose", [data], onnx_type, perm=[0, axis, *rest])
    picked = layer.move(
        "GatherND", [moved, layer.op("Unsqueeze", indices, layer.ints(-1))], onnx_type, batch_dims=1
    )  # [b, indices …, rest …]
    before = axis - 1
    index_dims, rest_dims = list(range(1, index_rank)), list(range(index_rank, index_rank + len(rest)))
    order = [0, *rest_dims[:before], *index_dims, *rest_dims[before:]]
    return layer.move("Transpose", [picked], onnx_type, perm=order)


def scatter(layer: LayerContext) -> str:
    """``IScatterLayer``: updates replace the elements that the indices name, and repeated indices are undefined."""
    inputs = [layer.value(0), layer.int64(1), layer.value(2)]
    mode, onnx_type = layer.handle.mode.name, layer.tensor(0).onnx_type
    if mode == "ELEMENT":
        return layer.move("ScatterElements", inputs, onnx_type, data=(0, 2), axis=int(layer.handle.axis))
    if mode == "ND":
        return layer.move("ScatterND", inputs, onnx_type, data=(0, 2))
    raise layer.layer.refused(f"no translation of the scatter mode {mode}")


def one_hot(layer: LayerContext) -> str:
    """``IOneHotLayer``: inputs are indices, [off, on] values, and the depth.

    A negative index counts from the back, and one outside the depth sets nothing.
    """
    rank = layer.rank(0) + 1
    axis = int(layer.handle.axis) % rank
    onnx_type = layer.tensor(1).onnx_type
    zero, one = (layer.scalar(v, TensorProto.INT64) for v in (0, 1))
    depth = layer.op("Reshape", layer.int64(2), layer.array([], "int64"))
    classes = layer.op("Reshape", layer.op("Range", zero, depth, one), layer.ints(-1, *[1] * (rank - axis - 1)))
    indices = layer.int64(0)
    from_the_back = layer.op("Add", indices, depth)
    indices = layer.op("Where", layer.op("Less", indices, zero), from_the_back, indices)
    hit = layer.op("Equal", layer.op("Unsqueeze", indices, layer.ints(axis)), classes)
    off, on = (layer.move("Gather", [layer.value(1), index], onnx_type) for index in (zero, one))
    return layer.move("Where", [hit, on, off], onnx_type, data=(1, 2))


def reverse_sequence(layer: LayerContext) -> str:
    """``IReverseSequenceLayer``: the first elements of each batch entry, as many as input 1 says, in reverse."""
    batch, sequence = int(layer.handle.batch_axis), int(layer.handle.sequence_axis)
    if {batch, sequence} != {0, 1}:
        raise layer.layer.refused(f"batch axis {batch} and sequence axis {sequence}: ONNX takes axes 0 and 1 only")
    inputs, onnx_type = [layer.value(0), layer.int64(1)], layer.tensor(0).onnx_type
    return layer.move("ReverseSequence", inputs, onnx_type, batch_axis=batch, time_axis=sequence)
