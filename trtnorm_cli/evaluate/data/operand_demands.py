"""The demands of each operator on the values of its operands, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trtnorm_cli.evaluate.data.demand import NOTHING, Demand, index_of
from trtnorm_cli.evaluate.data.input_flow import Site
from trtnorm_cli.evaluate.data.value_sets import EVERYTHING, NOT_NEGATIVE, between
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

Ask = Callable[[Site, int], Demand]

_BITS = 7
_FEW = 8
# Added to scores before a softmax, this much hides an element.
_HIDES = 1e3
_TINY = 1e-3
# The penalty of masks whose zeros hide, whatever they do it with.
_NOUGHT_HIDES = (1e38, -1e38)


def demand_of(site: Site, position: int) -> Demand:
    """The node's demand on the operand at ``position``."""
    if site.node.domain == "com.microsoft":
        table = _MICROSOFT
    elif site.node.domain in DEFAULT_DOMAINS:
        table = _ASKS
    else:
        return NOTHING
    ask = table.get(site.node.op_type)
    return ask(site, position) if ask is not None else NOTHING


def _only(position: int, ask: Ask) -> Ask:
    return lambda site, i: ask(site, i) if i == position else NOTHING


def _indices(site: Site, _: int, *, data: int = 0, default_axis: int = 0, distinct: bool = False) -> Demand:
    """An index into an axis of the operand ``data``, which the attribute ``axis`` names."""
    return index_of(site.size(data, site.attribute("axis", default_axis)), site.source(data), distinct=distinct)


def _table_rows(site: Site, _: int, *, table: int) -> Demand:
    return index_of(site.size(table, 0), site.source(table))


def _looked_up(site: Site, _: int) -> Demand:
    return index_of(site.size(0, site.attribute("gather_axis", 0)), site.source(0))


def _scattered(site: Site, _: int) -> Demand:
    """Indices that differ, because the result is not defined where two updates meet and nothing combines them."""
    return _indices(site, 1, distinct=site.text("reduction", "none") == "none")


def _points(site: Site, position: int, *, indices: int, distinct: bool) -> Demand:
    """The last axis of GatherND's and ScatterND's indices counts the axes of the data."""
    shape, depth = site.shape(0), site.size(indices, -1)
    first = site.attribute("batch_dims", 0)
    name = site.source(0)
    if position != indices:
        return NOTHING
    if shape is None or depth is None or first + depth > len(shape):
        return index_of(None, name)
    if depth == 1:
        return index_of(shape[first], name, distinct=distinct)
    each = [index_of(size, name) for size in shape[first : first + depth]]
    roles = each[0].roles | ({"distinct"} if distinct else set()) if each else frozenset[str]()
    components = tuple(one.legal.intersect(one.preferred) for one in each)
    return Demand(reasons=(f"index of {name}",), roles=roles, components=components)


def _scattered_points(site: Site, position: int) -> Demand:
    return _points(site, position, indices=1, distinct=site.text("reduction", "none") == "none")


def _slice(site: Site, position: int) -> Demand:
    """Starts before ends, so that something is left. Where both come from inputs, each has a half of the axis."""
    if position not in (1, 2) or site.opset < 10:
        return NOTHING
    size = _sliced_size(site)
    name = f"{'start' if position == 1 else 'end'} in {site.source(0)}"
    if size is None:
        return Demand(preferred=between(0, 0) if position == 1 else between(1, 3), reasons=(name,), roles=frozenset({"index"}))
    low, high = (0, size - 1) if position == 1 else (1, size)
    if {1, 2} <= site.reads.keys():
        low, high = (0, (size - 1) // 2) if position == 1 else ((size + 1) // 2, size)
    return Demand(NOT_NEGATIVE, between(low, max(high, low)), (name,), frozenset({"index"}))


def _sliced_size(site: Site) -> int | None:
    """The smallest axis that the Slice cuts. It cuts the first ones where it does not name any."""
    shape, count = site.shape(0), site.size(1, 0)
    if shape is None:
        return None
    if site.has(3):
        axis = site.constant(3)
        return None if axis is None else site.size(0, int(axis))
    known = [size for size in shape[: count or 1] if size is not None]
    return min(known) if known else None


def _one_hot(site: Site, position: int) -> Demand:
    if position == 1:
        return Demand(between(1, 1 << 20), between(2, _FEW), ("number of classes",), frozenset({"index"}))
    depth = site.constant(1) if position == 0 else None
    if depth is None:
        return NOTHING
    return Demand(preferred=between(0, depth - 1), reasons=(f"one of {int(depth)} classes",), roles=frozenset({"index"}))


def _count(what: str, low: int, high: int) -> Ask:
    """A number of things. It is no index, but small enough to be computed."""
    return lambda site, position: Demand(NOT_NEGATIVE, between(low, high), (what,), frozenset({"index"}))


def _top_k(site: Site, _: int) -> Demand:
    size = site.size(0, site.attribute("axis", -1))
    legal = between(1, size) if size else EVERYTHING
    return Demand(legal, between(1, size or 1), (f"number of largest elements of {site.source(0)}",), frozenset({"index"}))


def _axis(site: Site, _: int) -> Demand:
    rank = site.rank(0)
    return Demand(EVERYTHING if rank is None else between(-rank, rank - 1), between(0, (rank or 1) - 1), ("an axis",),
                  frozenset({"index"}))  # fmt: skip


def _recurrent_lengths(site: Site, _: int) -> Demand:
    return _lengths(site.size(0, 1 if site.attribute("layout", 0) else 0), site.source(0))


def _reversed_lengths(site: Site, _: int) -> Demand:
    return _lengths(site.size(0, site.attribute("time_axis", 0)), site.source(0))


def _lengths(size: int | None, name: str, low: int = 1) -> Demand:
    most = size if size else 1
    return Demand(between(low, most), between(max(low, 1), most), (f"lengths within {name}",), frozenset({"index", "length"}))


def _batch_numbers(site: Site, _: int) -> Demand:
    return index_of(site.size(0, 0), f"the batch of {site.source(0)}")


def _labels(site: Site, _: int) -> Demand:
    return index_of(site.size(0, 1), f"the classes of {site.source(0)}")


def _divisor(site: Site, position: int) -> Demand:
    """Whole numbers are not divided by zero."""
    if position != 1 or not site.reads[1].whole:
        return NOTHING
    return Demand(between(-float("inf"), -1).unite(between(1, float("inf"))), NOT_NEGATIVE, ("a divisor",))


def _domain(low: float, high: float, what: str) -> Ask:
    def ask(site: Site, position: int) -> Demand:
        return (
            NOTHING if position else Demand(legal=between(low, high), reasons=(f"fed to {what}",), roles=frozenset({"domain"}))
        )

    return ask


def _power(site: Site, position: int) -> Demand:
    exponent = site.constant(1) if position == 0 else None
    if exponent is None or float(exponent).is_integer():
        return NOTHING
    return Demand(legal=NOT_NEGATIVE, reasons=("raised to a broken power",), roles=frozenset({"domain"}))


def _trip_count(site: Site, position: int) -> Demand:
    if position == 1:
        return Demand(roles=frozenset({"flag"}))
    return Demand(NOT_NEGATIVE, between(1, _FEW), ("number of runs of a Loop",), frozenset({"index"}))


def _condition(site: Site, position: int) -> Demand:
    return Demand(roles=frozenset({"flag"}))


def _where(site: Site, position: int) -> Demand:
    """A condition that chooses a very low number hides an element."""
    if position != 0:
        return NOTHING
    for other, penalty in ((1, 1.0), (2, -1.0)):
        value = site.constant(other)
        if value is not None and value <= -_HIDES:
            value = max(value, -1e38)
            return _mask(penalty=(value, 0.0) if penalty > 0 else (-value, value))
    return _mask()


def _mask(penalty: tuple[float, float] | None = None) -> Demand:
    return Demand(roles=frozenset({"mask"}), penalty=penalty)


def _truth(site: Site, position: int) -> Demand:
    return _mask()


def _compared(site: Site, position: int) -> Demand:
    """Constants that a tensor is compared with. A range of positions makes it a length or a position."""
    other = 1 - position
    bounds = site.bounds(other)
    if bounds is None or not site.has(other) or site.reads[position].truth:
        return NOTHING
    low, high = bounds
    if low == high:
        return Demand(constants=frozenset({low}))
    if low != 0 or site.elements(other) != high + 1:
        return NOTHING
    strict = (site.node.op_type, other) in {("Less", 0), ("GreaterOrEqual", 0), ("Greater", 1), ("LessOrEqual", 1)}
    if strict:
        return Demand(preferred=between(1, high + 1), reasons=("lengths, compared with a range",),
                      roles=frozenset({"length"}))  # fmt: skip
    return Demand(preferred=between(0, high), reasons=("positions, compared with a range",), roles=frozenset({"index"}))


def _cast(site: Site, position: int) -> Demand:
    kind = site.attribute("to", 1)
    if kind == 9 and not site.reads[position].truth:
        return _mask()
    return Demand(roles=frozenset({"pixels"})) if kind in (1, 10, 11, 16) and site.reads[position].whole else NOTHING


def _pixels(site: Site, position: int) -> Demand:
    return NOTHING if position else Demand(roles=frozenset({"pixels"}))


def _quantised(*positions: int) -> Ask:
    """Integers that stand for floats, at these positions."""
    return lambda site, position: Demand(roles=frozenset({"pixels"})) if position in positions else NOTHING


def _factor(site: Site, position: int) -> Demand:
    """An integer made floating that multiplies features is a mask. A large factor makes a mask of it that is added."""
    reached = site.reads[position]
    other = 1 - position
    value = site.constant(other) if site.has(other) else None
    if value is not None and abs(value) >= _HIDES:
        return Demand(penalty=(max(min(float(value), 1e38), -1e38), 0.0))
    features = other in site.reads and not site.reads[other].counted
    if reached.counted and not reached.whole and (features or (other not in site.reads and not site.is_constant(other))):
        return _mask(_NOUGHT_HIDES)
    return NOTHING


def _wave(site: Site, position: int) -> Demand:
    return Demand(roles=frozenset({"position"})) if site.reads[position].counted else NOTHING


def _attention_mask(site: Site, position: int) -> Demand:
    if position == 3 and site.reads[position].truth:
        return _mask(_NOUGHT_HIDES)
    return _lengths(site.size(1, -2), site.source(1)) if position == 6 else NOTHING


def _embedding_norm(site: Site, position: int) -> Demand:
    """com.microsoft's EmbedLayerNormalization: tokens, segments, three tables, scale, shift, mask, positions."""
    if position == 7:
        return _mask(_NOUGHT_HIDES)
    table = {0: 2, 1: 4, 8: 3}.get(position)
    return NOTHING if table is None else _table_rows(site, position, table=table)


def _nothing_hidden(position: int) -> Ask:
    return _only(position, lambda site, _: _mask(_NOUGHT_HIDES))


_INFINITE = float("inf")
_ASKS: Mapping[str, Ask] = {
    "Gather": _only(1, _indices),
    "GatherElements": _only(1, _indices),
    "ScatterElements": _only(1, _scattered),
    "Scatter": _only(1, _scattered),
    "GatherND": partial(_points, indices=1, distinct=False),
    "ScatterND": _scattered_points,
    "ArrayFeatureExtractor": _only(1, partial(_indices, default_axis=-1)),
    "TensorScatter": _only(2, partial(_indices, default_axis=-2)),
    "RotaryEmbedding": _only(3, partial(_table_rows, table=1)),
    "Slice": _slice,
    "OneHot": _one_hot,
    "TopK": _only(1, _top_k),
    "CumSum": _only(1, _axis),
    "Range": _count("limit of a range", 1, _FEW),
    "ConstantOfShape": _count("sizes", 1, _FEW),
    "Tile": _only(1, _count("numbers of copies", 1, 2)),
    "Pad": _only(1, _count("widths of a border", 0, 2)),
    "BitShift": _only(1, lambda site, _: Demand(between(0, _BITS), reasons=("bits to shift by",), roles=frozenset({"index"}))),
    "RNN": _only(4, _recurrent_lengths),
    "GRU": _only(4, _recurrent_lengths),
    "LSTM": _only(4, _recurrent_lengths),
    "ReverseSequence": _only(1, _reversed_lengths),
    "RoiAlign": _only(2, _batch_numbers),
    "NegativeLogLikelihoodLoss": _only(1, _labels),
    "SoftmaxCrossEntropyLoss": _only(1, _labels),
    "SequenceAt": _only(1, _count("place in a sequence", 0, 0)),
    "Div": _divisor,
    "Mod": _divisor,
    "Log": _domain(_TINY, _INFINITE, "a logarithm"),
    "Sqrt": _domain(0, _INFINITE, "a square root"),
    "Acos": _domain(-1, 1, "an arc cosine"),
    "Asin": _domain(-1, 1, "an arc sine"),
    "Atanh": _domain(-1 + _TINY, 1 - _TINY, "an inverse hyperbolic tangent"),
    "Acosh": _domain(1, _INFINITE, "an inverse hyperbolic cosine"),
    "Pow": _power,
    "Loop": _trip_count,
    "If": _condition,
    "Where": _where,
    "Not": _truth,
    "And": _truth,
    "Or": _truth,
    "Xor": _truth,
    "Compress": _only(1, _truth),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _compared),
    "Cast": _cast,
    "DequantizeLinear": _pixels,
    "Conv": _pixels,
    "ConvInteger": _pixels,
    "MatMulInteger": _quantised(0, 1),
    "QLinearConv": _pixels,
    "QLinearMatMul": _quantised(0, 3),
    "Mul": _factor,
    "Sin": _wave,
    "Cos": _wave,
    "Attention": _attention_mask,
}

_MICROSOFT: Mapping[str, Ask] = {
    "EmbedLayerNormalization": _embedding_norm,
    "RotaryEmbedding": _only(1, partial(_table_rows, table=2)),
    "GatherBlockQuantized": _only(1, _looked_up),
    "DequantizeLinear": _pixels,
    "MatMulIntegerToFloat": _quantised(0, 1),
    **dict.fromkeys(("QGemm", "QLinearAdd", "QLinearMul"), _quantised(0, 3)),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearAveragePool", "QLinearGlobalAveragePool"), _pixels),
    "QLinearConcat": lambda site, position: _quantised(position)(site, position) if position % 3 == 2 else NOTHING,
    "QLinearWhere": lambda site, position: _quantised(1, 4)(site, position) if position else _truth(site, position),
    "Attention": _nothing_hidden(3),
    "MultiHeadAttention": _nothing_hidden(4),
    "SkipLayerNormalization": lambda site, position: NOTHING,
}
