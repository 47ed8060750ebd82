"""Try a narrowed model before TensorRT gets it, and refuse one that needs float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.errors import RewriteError
from trtnorm_cli.evaluate.data.drawing import fitting_feeds
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import shape_points
from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.precision.wide.blame import Loss, first_loss
from trtnorm_cli.precision.wide.centres import Centre, centres
from trtnorm_cli.precision.wide.check import Checked, Checker, Difference, Point
from trtnorm_cli.profile.facts import as_profiled
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.records.types import NarrowingCheck
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting

# A build should not wait long for this: it is compared again as TensorRT reads it.
_BUDGET_S, _RUN_S = 20.0, 60.0
# A model of which fewer nodes compute in double is not a model of doubles, and is tried at the smallest shapes alone.
_SHARE_OF_A_MODEL_OF_DOUBLES = 0.1
_CENTRED = "around what the model subtracts"


@dataclass(frozen=True)
class NarrowingResult:
    """The record of a check, and what the user must be told of it."""

    record: NarrowingCheck
    warnings: tuple[str, ...] = ()


def check_narrowing(prepared: Prepared, rewriting: Rewriting, scratch: Path, seed: int) -> NarrowingResult:
    """Run the model as written and the narrowed one on random inputs at min, opt and max of every optimization profile.

    Inputs from which the model first subtracts a large constant are tried around it too. Raises ``RewriteError`` where float32
    cannot give the results, with the node that loses them. What was not tried is in the record.
    """
    wide = rewriting.wide
    assert wide is not None, "only a narrowed model is checked"
    source = rewriting.meant or prepared.original.proto
    try:
        exact = Float64Model(source, rewriting.folder)
    except ReferenceUnavailable as error:
        return NarrowingResult(NarrowingCheck(skipped=(f"the model cannot be evaluated in float64: {error}",)))
    written, narrowed = scratch / "written.onnx", scratch / "narrowed.onnx"
    save_model(source, written, rewriting.folder)
    save_model(rewriting.model, narrowed, rewriting.folder)
    found = centres(wide, rewriting.folder, _undescribed(prepared, source))
    with OrtRunner(_RUN_S) as runner:
        checker = Checker(runner, written, narrowed, exact, _tolerances(prepared), _BUDGET_S)
        points = list(_points(prepared, source, found, seed))
        checked = checker.check(points[: 1 + bool(found)] if _is_marginal(rewriting) else points)
        worst = checked.worst
        loss = None
        if worst is not None and (worst.is_said or worst.is_refused):
            loss = first_loss(runner, wide, rewriting.folder, narrowed, worst.point.feeds)
    if worst is not None and worst.is_refused:
        raise _refusal(worst, loss, found, prepared)
    warnings = (_warning(worst, loss),) if worst is not None and worst.is_said else ()
    return NarrowingResult(_record(checked, loss), warnings)


def _is_marginal(rewriting: Rewriting) -> bool:
    """True where doubles are a corner of a float32 model, as exporters leave them: every shape would take time for nothing."""
    doubles = None if rewriting.types is None else rewriting.types.doubles
    if doubles is None or doubles.inputs or doubles.outputs:
        return False
    return doubles.computed < _SHARE_OF_A_MODEL_OF_DOUBLES * len(rewriting.model.graph.node)


def _undescribed(prepared: Prepared, model: onnx.ModelProto) -> dict[str, object]:
    """The inputs of whose values the build profile says nothing."""
    described = {} if prepared.profile is None else {**prepared.profile.data, **prepared.profile.values}
    return {name: kind for name, kind in model_inputs(model).items() if name not in described}


def _tolerances(prepared: Prepared) -> dict[str, Tolerance]:
    """By output name, '' for all others."""
    given = {} if prepared.profile is None else prepared.profile.tolerances
    return {("" if name == "default" else name): tolerance for name, tolerance in given.items()}


def _points(prepared: Prepared, source: onnx.ModelProto, found: list[Centre], seed: int) -> Iterator[Point]:
    """The centred inputs first: they are the likeliest to show something, and as small as any."""
    assert prepared.proof is not None, "a build has sizes"
    model = as_profiled(source, prepared.profile)
    ranges = InputRanges(model, prepared.proof.tensors)
    shapes = shape_points(prepared.proof, model_inputs(model), 0, np.random.default_rng(seed))
    shapes.sort(key=lambda point: point.elements)
    data = {} if prepared.profile is None else prepared.profile.data
    feeds, _, _ = fitting_feeds(ranges, shapes, data, seed)
    drawn = [Point(point.label, fed) for point, fed in zip(shapes, feeds, strict=True)]
    if drawn and (centred := _around(found, drawn[0].feeds, seed)):
        yield Point(f"{drawn[0].label}, {_CENTRED}", {**drawn[0].feeds, **centred})
    yield from drawn


def _around(found: list[Centre], feeds: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = {one.name: one.draw(feeds[one.name], rng) for one in found if one.name in feeds}
    return {name: value for name, value in values.items() if value is not None}


def _record(checked: Checked, loss: Loss | None) -> NarrowingCheck:
    worst = checked.worst
    return NarrowingCheck(
        tried=checked.tried,
        output=None if worst is None else worst.output,
        at=None if worst is None else worst.point.label,
        worst=None if worst is None else worst.narrowed,
        written=None if worst is None else worst.written,
        node=None if loss is None else loss.node,
        skipped=checked.skipped,
    )


def _in_words(worst: Difference, loss: Loss | None) -> list[str]:
    off = "not finite or of another shape" if np.isinf(worst.narrowed) else f"off by {worst.narrowed:.1e} of its largest value"
    own = "" if worst.written is None else f"; as written, with its doubles, by {worst.written:.1e}"
    lines = [f"output {worst.output} at {worst.point.label}: {off} in float32{own}"]
    return lines if loss is None else [*lines, loss.in_words()]


def _warning(worst: Difference, loss: Loss | None) -> str:
    return f"float32 in the place of double changes results: {'; '.join(_in_words(worst, loss))}"


def _refusal(worst: Difference, loss: Loss | None, found: list[Centre], prepared: Prepared) -> RewriteError:
    hints = []
    for one in found if _CENTRED in worst.point.label else ():
        largest = float(np.max(np.abs(one.centre)))
        hints.append(
            f"{one.node} says that {one.name} lies around {largest:.6g}: feed the difference from that instead, computed in "
            f"double before the engine; or say what {one.name} holds, under data: in the build profile"
        )
    hints.append(
        f"if that is exact enough, say so under tolerances: {{{worst.output}: {{atol: …, rtol: …}}}} in the build profile"
    )
    lines = [str(prepared.original.path), *_in_words(worst, loss)]
    return RewriteError("the model needs double, and TensorRT computes in float32", "\n".join(lines), "\n".join(hints))
