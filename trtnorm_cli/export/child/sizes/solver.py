"""Solve guards for the sizes that remain of what was asked for, and explain dimensions that cannot be dynamic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.child.arguments import Call
from trtnorm_cli.export.child.sizes.constraints import GuardLog, Location, Violations
from trtnorm_cli.export.child.sizes.dimensions import Dimension, Requested, TensorInput
from trtnorm_cli.export.child.sizes.guards import (
    Guard,
    Sizes,
    UnreadableGuard,
    counterexample,
    legal_sizes,
    only_size,
    read_guard,
    residues,
)
from trtnorm_cli.light_dataclass import dataclass

_SOURCE = re.compile(r"L(?P<keys>(?:\[[^\]]*\])+)\.size\(\)\[(?P<axis>\d+)\]")
_KEY = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FIX_MULTIPLE = re.compile(r"(?P<factor>\d+)\*_d\d+")


class Unsolved(Exception):
    """The guards could not be turned into sizes. ``error`` is what to tell the user if nothing else helps."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.summary)
        self.error = error


@dataclass(frozen=True)
class Assumption:
    """A guard on several sizes that does not hold everywhere. At ``sizes`` it fails."""

    text: str
    location: Location | None
    sizes: dict[str, int]

    def __str__(self) -> str:
        at = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        place = f", which comes from {self.location}" if self.location else ""
        return f"the trace holds where {self.text}{place}; it does not at {at}"


class Solver:
    """The dimensions between one trace and the next. Inside PyTorch they are called ``d0``, ``d1``, …"""

    def __init__(self, wanted: Requested, call: Call) -> None:
        self.wanted = wanted
        self.notes: list[str] = []
        self._symbols = {name: f"d{index}" for index, name in enumerate(wanted.dimensions)}
        self._guards: dict[str, dict[str, tuple[Guard, Location | None]]] = {name: {} for name in wanted.dimensions}
        self._leaf_of = {tuple(_plain(entry) for entry in leaf.path): leaf.name for leaf in call.leaves}
        self._order = call.order

    def symbol(self, name: str) -> str:
        return self._symbols[name]

    def solve(self, violations: Violations | None, log: GuardLog) -> None:
        """Narrow the dimensions. Raises ``ModelError`` where the module fixes one, ``Unsolved`` where nothing can be done."""
        before = self.wanted
        if violations is not None:
            for symbol, size in violations.specialised.items():
                self._refuse_specialised(self._dimension(symbol), size, log)
            for one, other in violations.equal:
                self._unite(self._dimension(one), self._dimension(other), log)
        if self.wanted is not before:
            return
        self._take_guards(violations, log)
        for name in self.wanted.dimensions:
            self._narrow(name)
        if self.wanted is before and violations is not None:
            self._take_fixes(violations.fixes)
        if self.wanted is before:
            told = self._readable(violations.text) if violations is not None else ""
            raise Unsolved(self.error("the sizes that the model takes could not be worked out", told, None))

    def violated(self, log: GuardLog) -> bool:
        """True when some guard on one size does not hold over all of its sizes, although PyTorch let it pass."""
        return any(counterexample(guard, self._ranges()) for guard, _ in self._read(log) if len(guard.names) == 1)

    def assumptions(self, log: GuardLog) -> Iterator[Assumption]:
        """Guards on several sizes, not about memory layouts, that fail somewhere in the ranges."""
        for guard, location in self._read(log):
            wrong = counterexample(guard, self._ranges()) if len(guard.names) > 1 else None
            if wrong is not None:
                sizes = {self._dimension(symbol): size for symbol, size in wrong.items()}
                yield Assumption(self._readable(guard.text), location, sizes)

    def require_dynamic(self, program: torch.export.ExportedProgram, log: GuardLog) -> None:
        """Raise ``ModelError`` for a dimension that came out as a constant."""
        shapes = placeholder_shapes(program, self._order)
        for name, held in self.wanted.inputs.items():
            shape = shapes.get(name) or ()
            for axis, dim in enumerate(held.shape[: len(shape)]):
                if isinstance(dim, str) and isinstance(shape[axis], int):
                    self._refuse_specialised(dim, shape[axis], log)

    def error(self, summary: str, detail: str, location: Location | None, hint: str | None = None) -> ModelError:
        """A ``ModelError`` that names the place in the user's model."""
        where = "\n".join(filter(None, [str(location) if location else "", detail])) or None
        return ModelError(f"the model cannot be exported with these dynamic sizes: {summary}", where, hint or _TWO_WAYS)

    def _dimension(self, symbol: str) -> str:
        """The user's name for ``d0``, ``_d0`` or ``8*_d0``."""
        found = re.search(r"_?(d\d+)", symbol)
        names = {symbol: name for name, symbol in self._symbols.items()}
        return names.get(found[1], symbol) if found else symbol

    def _readable(self, text: str) -> str:
        """PyTorch's text with the user's names."""
        text = _SOURCE.sub(lambda match: self._symbol_at(match) or match[0], text)
        return re.sub(r"\b_?d\d+\b", lambda match: self._dimension(match[0]), text)

    def _ranges(self) -> dict[str, Sizes]:
        return {self._symbols[name]: dimension.sizes for name, dimension in self.wanted.dimensions.items()}

    def _read(self, log: GuardLog) -> Iterator[tuple[Guard, Location | None]]:
        """The guards of ``log`` that are about dynamic dimensions alone and can be read, each once."""
        names = self._expressions(log)
        first = {recorded.text: recorded for recorded in reversed(log.guards) if not recorded.internal}
        for recorded in reversed(first.values()):
            guard = self._guard(recorded.text, names)
            if guard is not None:
                yield guard, recorded.location

    def _guard(self, text: str, names: Mapping[str, str]) -> Guard | None:
        plain = _SOURCE.sub(lambda match: self._symbol_at(match) or "_unknown", text)
        plain = _WORD.sub(lambda match: names.get(match[0], match[0]), plain)
        try:
            guard = read_guard(plain)
        except UnreadableGuard:
            return None
        return guard if guard.names and set(guard.names) <= set(self._ranges()) else None

    def _expressions(self, log: GuardLog) -> dict[str, str]:
        """``s73`` → ``d1``, and the symbol of ``_d1`` → ``(d1//8)``."""
        found = {}
        for symbol, source in log.sources.items():
            if match := _SOURCE.fullmatch(source):
                found[symbol] = self._symbol_at(match) or symbol
            elif source.startswith("_d") and self._dimension(source) in self.wanted.dimensions:
                found[symbol] = self._divided(source.removeprefix("_"))
        return {**{f"_{symbol}": self._divided(symbol) for symbol in self._symbols.values()}, **found}

    def _divided(self, symbol: str) -> str:
        return f"({symbol}//{self.wanted.dimensions[self._dimension(symbol)].sizes.multiple_of})"

    def _symbol_at(self, match: re.Match[str]) -> str | None:
        """The symbol of the dimension at ``L['x'].size()[2]``."""
        keys = tuple(_KEY.findall(match["keys"]))
        plain = tuple(key.strip("'\"") for key in keys)
        name = self._leaf_of.get(plain)
        if name is None and plain[0] == "flat_args" and len(plain) == 2:
            name = self._order[int(plain[1])]
        if name is None or name not in self.wanted.inputs:
            return None
        dim = self.wanted.inputs[name].shape[int(match["axis"])]
        return self._symbols[dim] if isinstance(dim, str) else None

    def _take_guards(self, violations: Violations | None, log: GuardLog) -> None:
        """Add guards on one size to those known, both those that PyTorch objects to and those that it recorded."""
        names = self._expressions(log)
        told = [self._guard(text, names) for text in violations.guards] if violations is not None else []
        located = {guard.text: location for guard, location in self._read(log)}
        for guard in [*(guard for guard, _ in self._read(log)), *told]:
            if guard is not None and len(guard.names) == 1:
                known = self._guards[self._dimension(guard.names[0])]
                known.setdefault(guard.text, (guard, located.get(guard.text)))

    def _narrow(self, name: str) -> None:
        dimension = self.wanted.dimensions[name]
        known = [pair for pair in self._guards[name].values() if counterexample(pair[0], self._ranges())]
        if not known:
            return
        m = dimension.sizes.multiple_of
        guards = [guard for guard, _ in self._guards[name].values()]
        also = [read_guard(f"Eq(Mod({self._symbols[name]}, {m}), 0)")] if m > 1 else []
        sizes = legal_sizes([*guards, *also], dimension.sizes.low, dimension.sizes.high, dimension.opt)
        guard, location = known[0]
        if sizes is None:
            raise self._no_multiple(dimension, guard, location)
        if sizes.high - sizes.low < _LEAST_PART * (dimension.asked[2] - dimension.asked[0]):
            raise self._too_few(dimension, sizes, guard, location)
        located = [pair for pair in known if pair[1] is not None] or known
        reasons = [self._readable(guard.text) + (f", from {place}" if place else "") for guard, place in located]
        self._set(dimension.narrowed(sizes, reasons))

    def _set(self, dimension: Dimension) -> None:
        self.wanted = replace(self.wanted, dimensions={**self.wanted.dimensions, dimension.name: dimension})

    def _no_multiple(self, dimension: Dimension, guard: Guard, location: Location | None) -> ModelError:
        low, high = dimension.sizes.low, dimension.sizes.high
        fixed = only_size(guard, low, high)
        if fixed is not None:
            return self._specialised_error(dimension.name, fixed, location, self._readable(guard.text))
        period = next((m for m in range(2, 1025) if residues([guard], m, low, high)), None)
        detail = f"guard: {self._readable(guard.text)}"
        if period is not None:
            legal = ", ".join(map(str, residues([guard], period, low, high)[:16]))
            detail += f"\nit holds for {dimension.name} mod {period} in {{{legal}}}, and no range of multiples covers that"
        return self.error(f"{dimension.name} cannot take sizes from {low} to {high}", detail, location)

    def _too_few(self, dimension: Dimension, sizes: Sizes, guard: Guard, location: Location | None) -> ModelError:
        name, (low, _, high) = dimension.name, dimension.asked
        places = ", ".join(f"{held}[{axis}]" for held, axis in dimension.places)
        summary = (
            f"{name} ({places}) was asked for from {low} to {high}, and the model's code takes {sizes.low} to {sizes.high}"
        )
        hint = (
            f"two ways out: write that range, or one size of it, in the build profile ({name}: {dimension.opt});\n"
            f"or change that line so that it works with the size at run time{_IMAGE_HINT}"
        )
        return self.error(summary, f"guard: {self._readable(guard.text)}", location, hint)

    def _refuse_specialised(self, name: str, size: int, log: GuardLog) -> None:
        symbol = self._symbols.get(name, name)
        names = self._expressions(log)
        for recorded in log.guards:
            plain = _WORD.sub(lambda match: names.get(match[0], match[0]), recorded.text)
            if re.search(rf"\b{symbol}\b", plain) and plain.startswith("Eq("):
                raise self._specialised_error(name, size, recorded.location, self._readable(plain))
        raise self._specialised_error(name, size, None)

    def _specialised_error(self, name: str, size: int, location: Location | None, guard: str = "") -> ModelError:
        places = ", ".join(f"{held}[{axis}]" for held, axis in self.wanted.dimensions[name].places)
        summary = f"{name} ({places}) is fixed to {size} by the model's code"
        hint = (
            f"two ways out: fix it in the build profile ({name}: {size}), and build an engine for each size;\n"
            f"or change that line so that it works with the size at run time{_IMAGE_HINT}"
        )
        return self.error(summary, f"guard: {guard}" if guard else "", location, hint)

    def _unite(self, one: str, other: str, log: GuardLog) -> None:
        """Take two dimensions for one, where the user named neither and asked the same of both."""
        a, b = self.wanted.dimensions[one], self.wanted.dimensions[other]
        if a.named or b.named or a.asked != b.asked:
            named = ", ".join(f"{x.name} ({', '.join(f'{i}[{axis}]' for i, axis in x.places)})" for x in (a, b))
            location = next((guard.location for guard in log.guards if guard.location and guard.text.startswith("Eq(")), None)
            hint = f"give the two axes one name under export.inputs ({one} in the place of {other}), or a fixed size"
            raise self.error(f"the model needs {named} to be equal", "", location, hint)
        inputs = {name: _renamed(held, other, one) for name, held in self.wanted.inputs.items()}
        dimensions = {name: held for name, held in self.wanted.dimensions.items() if name != other}
        dimensions[one] = replace(a, places=(*a.places, *b.places))
        self.wanted = replace(self.wanted, inputs=inputs, dimensions=dimensions)
        self._guards[one].update(self._guards.pop(other))
        del self._symbols[other]
        self.notes.append(f"{one} and {other} are one dimension, because the model needs them to be equal")

    def _take_fixes(self, fixes: Mapping[str, str]) -> None:
        """Take the multiples that PyTorch suggests where its guards could not be read, but no constant."""
        for symbol, value in fixes.items():
            found, name = _FIX_MULTIPLE.fullmatch(value.strip()), self._dimension(symbol)
            if found and name in self.wanted.dimensions:
                dimension = self.wanted.dimensions[name]
                m = int(found["factor"])
                low, high = -(-dimension.sizes.low // m) * m, dimension.sizes.high // m * m
                if m != dimension.sizes.multiple_of and low < high:
                    self._set(dimension.narrowed(Sizes(low, high, m), [f"PyTorch suggests {name} = {m}·n"]))


_IMAGE_HINT = " (a vision transformer: an option such as dynamic_img_size, or interpolated position embeddings)"
# Less than this part of the range that was asked for is refused rather than taken.
_LEAST_PART = 0.25
_TWO_WAYS = (
    "two ways out: give the build profile a range that the model takes (multiple_of, min and max), or a fixed size;\n"
    "or change that line of the model so that it works with the size at run time"
)


def _plain(entry: Any) -> str:
    return str(next((getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)), entry))


def _renamed(held: TensorInput, old: str, new: str) -> TensorInput:
    return replace(held, shape=tuple(new if dim == old else dim for dim in held.shape))


def placeholder_shapes(program: torch.export.ExportedProgram, order: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The shapes of a program's tensor inputs, with sizes as integers or symbolic.

    ``order`` names its inputs, tensors or not.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    users = program.graph_signature.user_inputs
    named = zip(order, (values.get(user) if isinstance(user, str) else None for user in users), strict=True)
    return {name: tuple(value.shape) for name, value in named if isinstance(value, torch.Tensor)}
