"""Find the smallest part of a model that TensorRT refuses, or dies on, in the same way.

Each trial cuts nodes out of the rewritten model, gives what enters the cut the shapes that it has at min, opt and max of each
optimization profile, and runs the real parser and builder on it in a process of its own. The choice of nodes follows delta
debugging (Zeller and Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing Input"). Before that it takes a shortcut to
the node that TensorRT names with what leads to it, or else to the shortest beginning of the graph that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

import onnx

from trtnorm_cli.errors import BuilderDied, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.extract import CannotBeCut, extract, reads
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types, model_inputs, pinned_types
from trtnorm_cli.tensorrt.explain import ParsedNodes, explain, informative, words
from trtnorm_cli.tensorrt.request import BuildResult, ShapeTriple

MAX_TRIALS = 60
# Stages at which a build fails whatever the part of the model.
NOT_OF_A_PART = ("load", "settings", "plugins", "write")
Profiles = tuple[dict[str, ShapeTriple], ...]
Part = frozenset[int]
# Runs one build; an exception is the death of the builder.
Build = Callable[[onnx.ModelProto, Profiles], BuildResult]


@dataclass(frozen=True)
class BuildFailure:
    """The way in which a build failed, without names and numbers, which differ between a model and a part of it."""

    kind: str
    operator: str = ""


@dataclass(frozen=True)
class Isolated:
    """The smallest failing part that was found, with its profiles and the numbers of its nodes, of all nodes, and of trials."""

    model: onnx.ModelProto
    profiles: Profiles
    nodes: int
    of: int
    trials: int
    failure: BuildFailure


@dataclass
class Isolation:
    """One search.

    ``on_trial`` hears of each trial, with its number, the size of the part, and whether it failed the same way.
    """

    model: onnx.ModelProto
    profiles: Profiles
    build: Build
    failure: BuildFailure
    on_trial: Callable[[int, int, bool], None] = lambda number, nodes, fails: None
    max_trials: int = MAX_TRIALS
    trials: int = 0
    _known: dict[Part, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shapes = Shapes(self.model, self.profiles)
        self._nodes = [i for i, node in enumerate(self.model.graph.node) if node.op_type != "Constant"]

    def search(self, named: Iterable[str]) -> Isolated | None:
        """The smallest failing part, or None when not even the whole model fails again. ``named`` are nodes TensorRT names."""
        whole = frozenset(self._nodes)
        part = self._around(named) or (self._shortest(whole) if self._fails(whole) else None)
        if part is None:
            return None
        part = self._reduced(part)
        model, profiles = self._cut(part)
        return Isolated(model, profiles, len(part), len(self._nodes), self.trials, self.failure)

    def _around(self, named: Iterable[str]) -> Part | None:
        """The first part that fails of a named node alone, and it with the nodes up to 1, 2, 4 … steps before it."""
        places = {_name(node): i for i, node in enumerate(self.model.graph.node)}
        for start in [places[name] for name in named if name in places][:3]:
            for depth in (0, 1, 2, 4, 8, 16):
                part = self._before(start, depth)
                if self._fails(part):
                    return part
        return None

    def _before(self, start: int, depth: int) -> Part:
        producers = {name: i for i, node in enumerate(self.model.graph.node) for name in node.output if name}
        found, border = {start}, {start}
        for _ in range(depth):
            border = {producers[n] for i in border for n in reads(self.model.graph.node[i]) if n in producers} - found
            found |= border
        return frozenset(i for i in found if self.model.graph.node[i].op_type != "Constant")

    def _shortest(self, part: Part) -> Part:
        """The shortest beginning of ``part``, and of that the shortest end, as far as halving finds them."""
        order = sorted(part)
        order = order[: self._smallest(1, len(order), lambda length: order[:length])]
        kept = self._smallest(1, len(order), lambda length: order[len(order) - length :])
        return frozenset(order[len(order) - kept :])

    def _smallest(self, low: int, high: int, piece: Callable[[int], Sequence[int]]) -> int:
        while low < high:
            middle = (low + high) // 2
            if self._fails(frozenset(piece(middle))):
                high = middle
            else:
                low = middle + 1
        return high

    def _reduced(self, part: Part) -> Part:
        """``part`` without every chunk that the failure does not need, in ever smaller chunks."""
        size = max(len(part) // 2, 1)
        while len(part) > 1 and self.trials < self.max_trials:
            order, smaller = sorted(part), None
            for at in range(0, len(order), size):
                rest = frozenset(order[:at] + order[at + size :])
                if rest and self._fails(rest):
                    smaller = rest
                    break
            if smaller is not None:
                part, size = smaller, min(size, max(len(smaller) // 2, 1))
            elif size == 1:
                break
            else:
                size //= 2
        return part

    def _fails(self, part: Part) -> bool:
        """True when the part alone fails in the same way. It is False also when the trials are used up."""
        if part not in self._known:
            if self.trials >= self.max_trials:
                return False
            self._known[part] = self._try(part)
        return self._known[part]

    def _try(self, part: Part) -> bool:
        try:
            model, profiles = self._cut(part)
        except CannotBeCut:
            return False
        self.trials += 1
        try:
            result = self.build(model, profiles)
            same = not result.ok and failure_of(result, model) == self.failure
        except BuilderDied as death:
            same = death_of(death) == self.failure
        self.on_trial(self.trials, len(part), same)
        return same

    def _cut(self, part: Part) -> tuple[onnx.ModelProto, Profiles]:
        model = extract(self.model, part, self._shapes.types)
        return model, self._shapes.profiles_of([value.name for value in model.graph.input])


class Shapes:
    """The shapes of all tensors at min, opt and max of each optimization profile."""

    def __init__(self, model: onnx.ModelProto, profiles: Profiles) -> None:
        # Of an input with a fixed shape, a profile gives the elements.
        fixed = {name for name, kind in model_inputs(model).items() if kind.is_static}
        self._elements = [{name: given for name, given in profile.items() if name in fixed} for profile in profiles]
        self._at = [
            [
                _types(model, {n: tuple(shapes[corner]) for n, shapes in profile.items() if n not in fixed})
                for corner in range(3)
            ]
            for profile in profiles
        ]
        self._given = {name for profile in profiles for name in profile if name not in fixed}
        corners = [types for profile in self._at for types in profile] or [_types(model, {})]
        self.types = {name: _covering(name, corners) for name in corners[0]}

    def profiles_of(self, inputs: Sequence[str]) -> Profiles:
        """Min, opt and max of those of ``inputs`` that vary or whose elements count, for each profile.

        Raises ``CannotBeCut`` where one is unknown.
        """
        varying = [name for name in inputs if name in self._given or self._varies(name)]
        found = [
            {
                **{name: self._triple(name, corners) for name in varying},
                **{name: given for name, given in elements.items() if name in inputs},
            }
            for corners, elements in zip(self._at, self._elements, strict=True)
        ]
        return tuple(found) if any(found) else ()

    def _varies(self, name: str) -> bool:
        kind = self.types.get(name)
        return kind is not None and None in (kind.shape or ())

    def _triple(self, name: str, corners: Sequence[Mapping[str, TensorType]]) -> ShapeTriple:
        shapes = [types[name].shape if name in types else None for types in corners]
        sizes = [tuple(size for size in shape or () if isinstance(size, int)) for shape in shapes]
        if any(shape is None or len(shape) != len(found) for shape, found in zip(shapes, sizes, strict=True)):
            raise CannotBeCut(name)
        return sizes[0], sizes[1], sizes[2]


def _types(model: onnx.ModelProto, pins: dict[str, tuple[int, ...]]) -> dict[str, TensorType]:
    try:
        return pinned_types(model, pins)
    except Exception:  # the inference library raises RuntimeError, ValueError and its own errors alike
        return declared_types(model)


def failure_of(result: BuildResult, model: onnx.ModelProto) -> BuildFailure:
    """The failure of a refused build, by the stage, the family of the first message, and the operator that it is about."""
    if result.stage in NOT_OF_A_PART:
        raise UsageProblem("\n".join(message.text for message in result.errors))
    first = informative(result.errors)[0]
    entry = explain(first.text, first.operator)
    family = entry.meaning if entry is not None else _without_names(words(first.text), model)
    return BuildFailure(f"{result.stage}: {family}", ParsedNodes(model).of(first)[1])


def death_of(error: BuilderDied) -> BuildFailure:
    """The death of a builder, by its signal, or that it was stopped. How much it had used differs from part to part."""
    return BuildFailure(re.sub(r"[\d.]+ (MiB|s)\b", "# \\1", error.summary))


def named_nodes(result: BuildResult, model: onnx.ModelProto) -> list[str]:
    """The nodes that TensorRT's messages are about."""
    nodes = ParsedNodes(model)
    names = (nodes.of(message)[0] for message in informative(result.errors))
    return list(dict.fromkeys(name for name in names if name))


def _without_names(text: str, model: onnx.ModelProto) -> str:
    names = {name for node in model.graph.node for name in (node.name, *node.input, *node.output) if name}
    kept = [word for word in re.split(r"[\s:,()\[\]`'\"]+", text) if word not in names]
    return re.sub(r"\d+", "#", " ".join(kept))


def _covering(name: str, corners: Sequence[Mapping[str, TensorType]]) -> TensorType:
    """One type for all corners. A dimension that varies is None, and so is the shape where a corner does not know it."""
    kinds = [types[name] for types in corners if name in types]
    shapes = [kind.shape for kind in kinds]
    if len(kinds) < len(corners) or any(shape is None or len(shape) != len(shapes[0] or ()) for shape in shapes):
        return TensorType(kinds[0].dtype, None)
    sizes = zip(*(shape or () for shape in shapes), strict=True)
    return TensorType(kinds[0].dtype, tuple(size[0] if len(set(size)) == 1 else None for size in sizes))


def _name(node: onnx.NodeProto) -> str:
    return node.name or (f"-> {node.output[0]}" if node.output else "")
