"""The nodes that stay float32, by the model, its ranges and the error budget; and the model converted so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

import numpy as np
import onnx

from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.budget import settle
from trtnorm_cli.precision.calibration import ValueRanges, kept_by_values, value_ranges
from trtnorm_cli.precision.convert import Typed, convert
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import low_type
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.precision.plan import TypePlan, kept, key_of
from trtnorm_cli.precision.raising import has_low_types, raised
from trtnorm_cli.precision.scaling.fit import Fitted, are_equal, scaled_to_fit
from trtnorm_cli.precision.static import static_kept
from trtnorm_cli.precision.units import Unit, units_of
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.progress import stage
from trtnorm_cli.records.precision import Kept, Scaled
from trtnorm_cli.rewrite.rewriting import Rewriting


@dataclass(frozen=True)
class Found:
    """A conversion and its errors.

    ``errors`` are relative L2 by output and number of the inputs, with each result rounded to its type. ``low`` are the keys of
    the nodes in the low type, ``evaluations`` counts the runs that it took to find the others. ``unseen`` are errors at inputs
    that the others were not found on. ``scaled`` are tensors held as a power of two of themselves. ``notes`` are for the user.
    """

    typed: Typed
    errors: Mapping[tuple[str, int], float]
    low: frozenset[str]
    evaluations: int
    notes: tuple[str, ...] = ()
    unseen: Mapping[tuple[str, int], float] = field(default_factory=dict)
    scaled: tuple[Scaled, ...] = ()


class Search:
    """One model under one set of settings. What does not depend on the budget is found once.

    Raises ``ProfileError`` where the settings name what the model does not have, and ``RunFailed`` as ``runner`` does.
    """

    def __init__(
        self,
        rewriting: Rewriting,
        settings: PrecisionSettings,
        feeds: Sequence[Arrays],
        is_users_data: bool,
        runner: OrtRunner,
    ) -> None:
        # A model that is half in part becomes float32 first; what its author guarded stays so.
        wide = raised(rewriting.model, rewriting.folder) if has_low_types(rewriting.model) else None
        self._model, self._folder, self._settings = rewriting.model, rewriting.folder, settings
        self._shelves = () if wide is None else wide.shelves
        if wide is not None:
            self._model = wide.model
        self._low = low_type(settings.type)
        # What rules have put in the place of a normalization may be in pieces too, so they are looked for in the result.
        self._units, self._types = units_of(self._model, self._folder)
        with stage("ranges", unit="runs"):
            ranges = self._fitted_ranges(feeds, is_users_data, runner)
        static = static_kept(self._model, self._folder, self._types, self._units, self._low, settings.keep_fp32)
        self._emulator = Emulator(self._model, self._folder, self._types, self._low, feeds, runner, settings.io)
        known = {**({} if wide is None else wide.guards), **static}
        try:
            with stage("ranges", unit="runs"):
                found = kept_by_values(self._model, self._units, ranges, self._emulator, settings.limit, known.keys())
        except BaseException:
            self._emulator.close()
            raise
        self._kept, self._notes, self.takes_images = {**found.kept, **known}, found.notes, found.takes_images

    def _fitted_ranges(self, feeds: Sequence[Arrays], is_users_data: bool, runner: OrtRunner) -> ValueRanges:
        """The ranges of the model, which has tensors scaled from here on where that changes no output."""
        ranges = self._ranges(feeds, is_users_data, runner)
        plain = self._model, self._units, self._types
        self._fitted = scaled_to_fit(self._model, self._folder, self._types, self._units, self._low, ranges)
        if self._fitted is not None:
            self._model = self._fitted.model
            self._units, self._types = units_of(self._model, self._folder)
            with suppress(RunFailed):
                scaled = self._ranges(feeds, is_users_data, runner)
                if are_equal(ranges.outputs, scaled.outputs):
                    return scaled
            self._fitted, (self._model, self._units, self._types) = None, plain
        return ranges

    def _ranges(self, feeds: Sequence[Arrays], is_users_data: bool, runner: OrtRunner) -> ValueRanges:
        return value_ranges(self._model, self._folder, self._types, self._units, self._low, feeds, is_users_data, runner)

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *exception: object) -> None:
        self._emulator.close()

    def exact(self, number: int) -> Mapping[str, np.ndarray]:
        """The outputs in float32 for one of the inputs, whatever the types of the file."""
        return self._emulator.reference(number)

    def refuse(self, names: Sequence[str], why: str) -> bool:
        """Keep the nodes ``names`` in float32, because TensorRT refuses them. False where none of them could be low."""
        new = {
            key_of(node): kept(node, "type", f"TensorRT refuses {node.op_type} in {self._low.name}: {why}")
            for node in self._model.graph.node
            if node.name in names and key_of(node) in self._emulator.keys - self._kept.keys()
        }
        self._kept.update(new)
        return bool(new)

    @property
    def nodes(self) -> int:
        """The number of nodes that can be low."""
        return len(self._emulator.keys)

    def add(self, feeds: Sequence[Arrays]) -> list[int]:
        """Take further inputs; the numbers that they have from here on."""
        return self._emulator.add(feeds)

    def errors(self, found: Found, numbers: Iterable[int]) -> dict[tuple[str, int], float]:
        """The errors of a conversion at the inputs with these numbers, by output and number."""
        asked = list(numbers)
        return {
            (name, number): error
            for number, errors in zip(asked, self._emulator.errors_by_feed(found.low, asked), strict=True)
            for name, error in errors.judged.items()
        }

    def found(self, limit: float, numbers: Sequence[int], beyond: Found | None = None) -> Found:
        """The conversion whose errors at the inputs with these numbers stay within ``limit``.

        What is float32 in ``beyond`` is so in it as well. Raises ``ProfileError`` where there is none.
        """
        kept = {**self._kept, **({} if beyond is None else {one.key: one for one in beyond.typed.kept})}
        while True:
            settled = settle(self._emulator, self._model, self._units, limit, kept, numbers)
            found = self._converted({**settled.kept, **kept})
            found = replace(found, errors=self.errors(found, numbers), evaluations=self._emulator.evaluations)
            if max(found.errors.values(), default=0.0) <= limit:
                return found
            # Nodes joined float32 ones to save casts. That moves rounding to other places, which an unsteady network may feel.
            kept.update({one.key: one for one in found.typed.kept})

    def _converted(self, kept: Mapping[str, Kept]) -> Found:
        found = self._typed(kept, self._model, self._units, self._types, self._fitted)
        if self._fitted is None:
            return found
        fitted = self._fitted.serving(found.low, self._folder)
        return (
            found if fitted is self._fitted else self._typed(kept, fitted.model, *units_of(fitted.model, self._folder), fitted)
        )

    def _typed(
        self,
        kept: Mapping[str, Kept],
        model: onnx.ModelProto,
        units: Sequence[Unit],
        types: Mapping[str, TensorType],
        fitted: Fitted | None,
    ) -> Found:
        plan = TypePlan(self._low, kept, self._settings.io)
        typed = convert(model, self._folder, plan, units, types)
        shelves = () if fitted is None else (fitted.shelf,)
        typed = replace(typed, shelves=(*self._shelves, *shelves, *typed.shelves))
        low = self._emulator.keys.intersection(map(key_of, model.graph.node)) - {one.key for one in typed.kept}
        return Found(typed, {}, low, 0, self._notes, scaled=() if fitted is None else fitted.tensors)
