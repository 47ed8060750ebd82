"""How a scale and shift passes operators that work on each channel: pooling, padding, interpolation, rectifiers."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, affine
from trtnorm_cli.rewrite.scale_shift.operation import Operation


def average(op: Operation, given: Affine, back: bool) -> Affine:
    """Averages over the plane: the weights of a mean add up to one, unless padding zeros are counted in."""
    given.require_only((0, 1), op.name)
    if op.op == "AveragePool" and _pads(op) and op.attr("count_include_pad", 0):
        raise CannotMove(f"{op.name} averages over zeros that it pads, which a shift would not reach")
    if op.op == "AveragePool" and op.attr("ceil_mode", 0):
        raise CannotMove(
            f"{op.name} has ceil_mode=1: whether its last windows count what lies outside differs between runtimes"
        )
    return given


def maximum(op: Operation, given: Affine, back: bool) -> Affine:
    """Maxima over the plane: a scale that is not negative keeps the order."""
    given.require_only((0, 1), op.name)
    _require_no_negative_scale(op, given)
    return given


def reduce(op: Operation, given: Affine, back: bool) -> Affine:
    """ReduceMean and ReduceMax over axes on which the scale and shift does not depend."""
    rank = len(op.input_shape(0))
    axes = op.axes(1)
    if not axes and op.attr("noop_with_empty_axes", 0):
        return given
    reduced = sorted(set(op.counted(axes, rank)) if axes else range(rank))
    if op.op == "ReduceMax":
        _require_no_negative_scale(op, given)
    keeps = bool(op.attr("keepdims", 1))
    if back and not keeps:
        given = given.moved(lambda v: np.expand_dims(v, tuple(reduced)))
    if any(given.shape[axis] != 1 for axis in reduced):
        raise CannotMove(f"{op.name} reduces axis {reduced[0]}, along which scale and shift differ")
    return given if back or keeps else given.moved(lambda v: v.reshape([s for i, s in enumerate(v.shape) if i not in reduced]))


def resize(op: Operation, given: Affine, back: bool) -> Affine:
    """Interpolation between two neighbours: the weights add up to one, and what lies outside repeats the border."""
    if op.text("mode", "nearest") == "cubic":
        raise CannotMove(f"{op.name} is cubic: its rounded weights add up to one only nearly")
    if op.text("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise CannotMove(f"{op.name} fills in a constant, which a shift would not reach")
    first, second = op.input_shape(0), op.output_shape()
    changed = [axis for axis in given.axes if not isinstance(first[axis], int) or first[axis] != second[axis]]
    if changed:
        raise CannotMove(f"{op.name} resizes axis {changed[0]}, along which scale and shift differ")
    return given


def pad(op: Operation, given: Affine, back: bool) -> Affine:
    """Padding with copies, or with a constant that the scale and shift does not change, as zero without a shift."""
    mode = op.text("mode", "constant")
    stated = op.attr("pads") if op.opset < 11 else op.weight(1).tolist()
    axes = None if op.opset < 18 else op.constant(3)
    padded_axes = range(given.rank) if axes is None else op.counted(axes, given.rank)
    begins, ends = np.reshape(np.asarray(stated), (2, -1)).tolist()
    padded = [axis for axis, begin, end in zip(padded_axes, begins, ends, strict=True) if begin or end]
    if any(axis in padded for axis in given.axes):
        raise CannotMove(f"{op.name} pads axis {padded[0]}, along which scale and shift differ")
    value = float(op.attr("value", 0.0)) if op.opset < 11 else float(np.reshape(_or_zero(op.constant(2)), ()))
    if mode == "constant" and padded and np.any(given.scale * value + given.shift != value):
        raise CannotMove(f"{op.name} pads with {value:g}, which the scale and shift would have to reach as well")
    return given


def _or_zero(value: np.ndarray | None) -> np.ndarray:
    return np.zeros(()) if value is None else value


def rectifier(op: Operation, given: Affine, back: bool) -> Affine:
    """Relu, LeakyRelu, PRelu: only a scale goes through, and only one that is not negative."""
    if given.shifts:
        raise CannotMove(f"a shift does not go through {op.name}, which is {op.op}")
    _require_no_negative_scale(op, given)
    return given


def negate(op: Operation, given: Affine, back: bool) -> Affine:
    return affine(given.scale, -given.shift)


def _require_no_negative_scale(op: Operation, given: Affine) -> None:
    lowest = float(given.scale.min())
    if lowest < 0:
        raise CannotMove(f"{op.name} is {op.op}, and a scale is negative ({lowest:g})")


def _pads(op: Operation) -> bool:
    """True when a pooling operator may pad."""
    auto = op.text("auto_pad", "NOTSET")
    return auto.startswith("SAME") or (auto == "NOTSET" and any(op.attr("pads", ())))
