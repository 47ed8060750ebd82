"""The values that fit an input. Its uses in the model say what is legal, and a legal range is drawn from as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx

from trtnorm_cli.evaluate.data.demand import NOTHING, Demand, merged
from trtnorm_cli.evaluate.data.input_flow import reach
from trtnorm_cli.evaluate.data.operand_demands import demand_of
from trtnorm_cli.evaluate.data.tensor_facts import Facts
from trtnorm_cli.evaluate.data.value_passing import passed_back
from trtnorm_cli.evaluate.data.value_sets import NOT_NEGATIVE, Values, between
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.functions import with_functions_inlined
from trtnorm_cli.onnx_model.shapes import TensorType, model_inputs
from trtnorm_cli.shapes.tensor import SymbolicTensor

Shapes = Mapping[str, tuple[int, ...]]

# Integers of which nothing is known are small.
_UNKNOWN = between(0, 3)
_SPREAD = 3
# More than this is the type's range, not the model's.
_ENDLESS = 1 << 31
# Numbers that become sines and cosines are positions or steps; those of a scalar have no axis that says how many there are.
_STEPS = 1000


@dataclass(frozen=True)
class Domain:
    """The values that an input is drawn from, and why, in words.

    ``values`` are drawn evenly, one set for each position of the last axis where ``components`` are given. Where they are
    infinite, they are drawn at a normal distance from the finite end. ``choices`` are single numbers. A mask holds 0 and 1, and
    ``open`` is the one that hides nothing. It stands first in every row, and so does one of the ``shown`` numbers where a mask
    is made of numbers. Of lengths the first is the longest.
    """

    text: str
    kind: str = "normal"
    values: Values | None = None
    components: tuple[Values, ...] | None = None
    choices: tuple[int | float, ...] = ()
    open: int = 1
    distinct: bool = False
    shown: Values | None = None
    note: str | None = None


class InputRanges:
    """The uses of a model's inputs. ``tensors`` are its symbolic tensors, where they are known already."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, SymbolicTensor] | None = None) -> None:
        self.inputs = model_inputs(model)
        model = with_functions_inlined(model)
        self._facts = Facts(model, tensors)
        self._roots, self._sites = reach(model, {name: kind.dtype for name, kind in self.inputs.items()}, self._facts)

    def at(self, shapes: Shapes, values: Shapes | None = None) -> dict[str, Domain]:
        """The domain of each input where the inputs have these shapes, and those that hold sizes these elements."""
        self._facts.at(shapes, values or {})
        demands = self._demands()
        return {
            name: _domain(name, self.inputs[name], shapes[name], demands.get(id(root), NOTHING))
            for name, root in self._roots.items()
            if name in shapes
        }

    def _demands(self) -> dict[int, Demand]:
        """The demand on each reached tensor. Uses come before the tensors that they are made from."""
        found: dict[int, Demand] = {}
        for site in reversed(self._sites):
            for position, reached in site.reads.items():
                asked = demand_of(site, position)
                for made in site.makes.values():
                    asked = merged(asked, passed_back(site, position, found.get(id(made), NOTHING)))
                found[id(reached)] = merged(found.get(id(reached), NOTHING), asked)
        return found


def _domain(name: str, kind: TensorType, shape: tuple[int, ...], demand: Demand) -> Domain:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    if dtype == np.bool_:
        return _boolean(shape, demand)
    if np.issubdtype(dtype, np.integer):
        return _integer(name, dtype, shape, demand)
    return _floating(name, demand)


def _boolean(shape: tuple[int, ...], demand: Demand) -> Domain:
    if "flag" in demand.roles and math.prod(shape) == 1:
        return Domain("false or true (a condition)", "choices", choices=(0, 1))
    return _mask(demand, "booleans", ("false", "true"))


def _mask(demand: Demand, what: str, words: tuple[str, str] = ("0", "1")) -> Domain:
    shown = _open(demand)
    return Domain(f"{what}, {words[shown]} first in each row (a mask)", "mask", open=shown)


def _open(demand: Demand) -> int:
    """The value of a mask that hides nothing. It is 1 unless the uses of the mask say otherwise."""
    return 0 if demand.hides == 1 else 1


def _integer(name: str, dtype: np.dtype, shape: tuple[int, ...], demand: Demand) -> Domain:
    legal = demand.whole_rows().legal.whole()
    limits = np.iinfo(dtype)
    fitting = legal.intersect(between(int(limits.min), int(limits.max)))
    if fitting.empty:
        why = "; ".join(demand.reasons)
        note = f"no value fits all uses of the input {name} ({why}): it is drawn from 0 to 3"
        return replace(_evenly(_UNKNOWN, "no value fits all its uses"), note=note)
    if "index" in demand.roles:
        return _index(demand, fitting)
    if ("mask" in demand.roles or demand.hides is not None) and fitting.includes(0, 1) and demand.constants <= {0, 1}:
        return _mask(demand, "0 and 1")
    if demand.constants and math.prod(shape) <= 1:
        choices = tuple(sorted(c for c in demand.constants if fitting.contains(c) and float(c).is_integer()))
        if choices:
            text = f"{' or '.join(str(int(c)) for c in choices)} (compared with {'it' if len(choices) == 1 else 'them'})"
            return Domain(text, "choices", choices=tuple(int(c) for c in choices))
    return _counted(demand, fitting, limits, shape)


def _counted(demand: Demand, legal: Values, limits: np.iinfo, shape: tuple[int, ...]) -> Domain:
    """Integers that are neither indices nor masks."""
    preferred = legal.intersect(demand.preferred.whole()).intersect(NOT_NEGATIVE)
    if demand.preferred.bounded and not preferred.empty:
        return _evenly(preferred, _why(demand), "lengths" if "length" in demand.roles else "evenly")
    if demand.constants:
        most = max(_SPREAD, int(max(demand.constants)) + 1)
        return _evenly(_first(legal.intersect(between(0, most)), legal), "compared with constants")
    if "position" in demand.roles:
        count = shape[-1] if len(shape) > 1 else _STEPS
        return _evenly(_first(legal.intersect(between(0, count - 1)), legal), "positions or steps, made sines and cosines")
    if "pixels" in demand.roles and limits.bits == 8:
        return _evenly(legal, "the whole type, used as numbers")
    return _evenly(_first(legal.intersect(_UNKNOWN), legal), _why(demand) or "nothing says which")


def _index(demand: Demand, legal: Values) -> Domain:
    values = legal
    for wish in (demand.preferred.whole(), NOT_NEGATIVE):
        values = _first(values.intersect(wish), values)
    if values.high - values.low >= _ENDLESS:
        values = _first(Values(()), values)
    kind = "lengths" if "length" in demand.roles else "evenly"
    found = _evenly(values, _why(demand), kind)
    if demand.components is not None:
        own = tuple(_first(c.intersect(demand.legal), c).whole() for c in demand.components)
        if all(c.bounded for c in own):
            each = ", ".join(f"{c.low} to {c.high}" for c in own)
            found = replace(found, components=own, text=f"integers {each} along the last axis ({_why(demand)})")
    shown = values.intersect(demand.shown.whole())
    return replace(found, distinct="distinct" in demand.roles, shown=None if shown in (values, Values(())) else shown)


def _floating(name: str, demand: Demand) -> Domain:
    if demand.roles & {"index", "length"}:
        values = _first(demand.legal.intersect(demand.preferred), demand.legal)
        if values.bounded:
            return _lengths_or_indices(demand, values)
    if demand.hides is not None:
        return _mask(demand, "0 and 1")
    if "domain" in demand.roles and not demand.legal.empty:
        legal = demand.legal
        if legal.bounded:
            return Domain(f"even from {legal.low:g} to {legal.high:g} ({_why(demand)})", "evenly_real", legal)
        if math.isfinite(legal.low) or math.isfinite(legal.high):
            side = f"from {legal.low:g} up" if math.isfinite(legal.low) else f"up to {legal.high:g}"
            return Domain(f"half normal {side} ({_why(demand)})", "half_normal", legal)
    note = f"no value fits all uses of the input {name} ({_why(demand)})" if demand.legal.empty else None
    return Domain("standard normal", note=note)


def _lengths_or_indices(demand: Demand, values: Values) -> Domain:
    """Whole numbers where there are several. Fractions of a length lie between 0 and 1."""
    whole = values.whole()
    if not whole.empty and whole.high - whole.low >= 2 and float(values.high).is_integer():
        return _evenly(whole, _why(demand), "lengths" if "length" in demand.roles else "evenly", "whole numbers")
    return Domain(f"even from {values.low:g} to {values.high:g} ({_why(demand)})", "evenly_real", values)


def _evenly(values: Values, why: str, kind: str = "evenly", what: str = "integers") -> Domain:
    spans = " and ".join(f"{low} to {high}" for low, high in values.parts)
    return Domain(f"{what} {spans} ({why})", kind, values)


def _why(demand: Demand) -> str:
    return ", ".join(dict.fromkeys(demand.reasons))


def _first(wanted: Values, otherwise: Values) -> Values:
    """``wanted``, or where that is empty ``otherwise``, near zero where it has no end."""
    if not wanted.empty:
        return wanted
    if otherwise.bounded and otherwise.high - otherwise.low < _ENDLESS:
        return otherwise
    nearest = min((min(max(0, low), high) for low, high in otherwise.parts), key=abs)
    return otherwise.intersect(between(nearest - _SPREAD, nearest) if nearest < 0 else between(nearest, nearest + _SPREAD))
