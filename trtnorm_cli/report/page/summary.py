"""The summary: what somebody wants to know who will never look at a kernel."""

from __future__ import annotations

import math

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.comparison import ComparisonRecord
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.report.page.words import counted, microseconds, percent, size
from trtnorm_cli.tensorrt.manifest import Manifest

_BACKENDS = {"tensorrt": "NVIDIA TensorRT", "tensorrt-rtx": "NVIDIA TensorRT for RTX"}
# The generation of a GPU by the first digits of its compute capability, https://developer.nvidia.com/cuda-gpus.
_GENERATIONS = {"75": "Turing", "80": "Ampere", "86": "Ampere", "87": "Ampere", "89": "Ada", "90": "Hopper", "100": "Blackwell",
                "103": "Blackwell", "110": "Blackwell", "120": "Blackwell", "121": "Blackwell"}  # fmt: skip
# A time that differs by less from another is the same to a reader.
_NOTEWORTHY = 0.99


@dataclass(frozen=True)
class Verdict:
    """The verdict on what the engine computes. ``mood`` is ``good``, ``fair`` (not known) or ``bad``."""

    mood: str
    title: str
    text: str


@dataclass(frozen=True)
class Figure:
    """One number of the summary, what it counts, and a sentence about it."""

    value: str
    name: str
    text: str


@dataclass(frozen=True)
class Summary:
    """The first screen of the page."""

    model: str
    engine: str
    runs_on: str
    verdict: Verdict
    figures: tuple[Figure, ...]

    @staticmethod
    def of(manifest: Manifest, remarks: int) -> Summary:
        """``remarks`` is the number of warnings that the page shows."""
        figures = (
            _normalizations(manifest),
            _kernels(manifest),
            Figure(size(manifest.engine.bytes), "engine file", "To be kept together with its .json file."),
            Figure(f"{remarks}", "warning" if remarks == 1 else "warnings", _remarks_text(remarks)),
        )
        return Summary(manifest.source.file, manifest.engine.file, _runs_on(manifest), _verdict(manifest), figures)


def _runs_on(manifest: Manifest) -> str:
    versions, engine = manifest.versions, manifest.engine
    program = f"{_BACKENDS.get(versions.backend, versions.backend)} {versions.tensorrt}"
    if not engine.targets:
        return f"{program}, on the kind of GPU that it was built on"
    return f"{program}, on {' and '.join(map(_target, engine.targets))} GPUs{' and newer' if engine.newer_too else ''}"


def _target(name: str) -> str:
    number = name.removeprefix("sm_")
    return f"{_GENERATIONS[number]} ({name})" if number in _GENERATIONS else name


def _verdict(manifest: Manifest) -> Verdict:
    comparison = manifest.comparison
    if comparison is None:
        text = "The comparison was left out. Build without --no-compare to have it."
        return Verdict("fair", "Not compared with the original", text)
    if comparison.state == "failed":
        return Verdict("bad", "Does not compute what the original computes", "See the differences below before you use it.")
    if comparison.state != "passed":
        return Verdict("fair", "Not compared with the original", "; ".join(comparison.not_compared))
    return Verdict("good", "Computes what the original computes", _distance(comparison, manifest))


def _distance(comparison: ComparisonRecord, manifest: Manifest) -> str:
    verdicts = [verdict for candidate in comparison.candidates for verdict in candidate.outputs]
    off = [verdict.native_distance for verdict in verdicts if math.isfinite(verdict.native_distance)]
    is_measured = any(verdict.share is not None and verdict.passed for verdict in verdicts)
    at = counted(len(comparison.at), "set of inputs", "sets of inputs")
    most = f"On {at}, results are at most {percent(max(off))} away" if off else f"It was tried on {at}"
    if manifest.precision is not None:
        return f"{most} from the original, in {manifest.precision.type} instead of full precision."
    within = ", within ordinary rounding" if is_measured else ""
    return f"{most}{within}."


def _normalizations(manifest: Manifest) -> Figure:
    norms = manifest.normalizations
    count = sum(norms.nodes.values()) + sum(norms.pieces.values())
    changes = len(manifest.changes)
    text = (
        f"{counted(changes, 'change')} to the model, {'each ' if changes > 1 else ''}checked by calculation."
        if changes
        else "The model is used as it is."
    )
    return Figure(f"{count:,}", "normalization layer" if count == 1 else "normalization layers", text)


def _kernels(manifest: Manifest) -> Figure:
    now, before = manifest.network.launches, manifest.optimize.before
    if manifest.cost is not None:
        return _time(manifest, manifest.cost)
    text = "One run takes so many programs on the GPU."
    if before is not None and not before.reason and before.launches != now:
        less = "fewer" if now < before.launches else "more"
        text = f"{abs(before.launches - now):,} {less} than without the changes to the model."
    return Figure(f"{now:,}", "steps on the GPU", text)


def _time(manifest: Manifest, cost: EngineCostRecord) -> Figure:
    """The estimated time of a run, and what it was before the changes."""
    before = manifest.optimize.before
    text = f"An estimate for {cost.device}, in {counted(manifest.network.launches, 'step')} on the GPU."
    if before is not None and before.cost is not None and before.cost.us and cost.total.us <= _NOTEWORTHY * before.cost.us:
        text += f" That is {percent(1 - cost.total.us / before.cost.us)} less than without the changes."
    return Figure(f"≈ {microseconds(cost.total.us)}", "for one run", text)


def _remarks_text(remarks: int) -> str:
    return "Worth reading before you use the engine." if remarks else "Nothing to look out for."
