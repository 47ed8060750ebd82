"""The steps of the build, with what each of them did and how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.cleaning import cleaning_text
from trtnorm_cli.report.page.words import counted, seconds
from trtnorm_cli.tensorrt.manifest import Manifest


@dataclass(frozen=True)
class Step:
    """A step: its name, what it did, and its seconds as text and as a share of the longest step's."""

    name: str
    did: str
    time: str
    share: float


def steps_of(manifest: Manifest) -> list[Step]:
    """The steps in their order."""
    found = list(_steps(manifest))
    longest = max((spent for _, _, spent in found if spent is not None), default=0.0)
    return [
        Step(name, did, "" if spent is None else seconds(spent), 0.0 if not spent or not longest else spent / longest)
        for name, did, spent in found
    ]


def _steps(manifest: Manifest) -> Iterator[tuple[str, str, float | None]]:
    spent = dict(manifest.seconds)
    if manifest.export is not None:
        export = manifest.export
        torch, exporter = export.versions.torch, export.exporter
        did = f"PyTorch {torch} wrote {export.spec} as ONNX, opset {export.opset}, with the {exporter} exporter."
        yield "Export", did, sum(export.seconds.values())
    yield "Read", f"{manifest.source.file} with its weights.", None
    yield "Clean", _cleaned(manifest), None
    yield "Rewrite", _rewritten(manifest), spent.pop("rewrite", None)
    if manifest.types is not None or "types" in spent:
        yield "Types", "Types that TensorRT does not have became types that it has.", spent.pop("types", None)
    if manifest.precision is not None:
        record = manifest.precision
        did = f"{counted(record.low, 'node')} compute in {record.type}, {len(record.kept):,} stay float32."
        yield "Precision", did, spent.pop("precision", None)
    did = f"TensorRT read the model as a network of {counted(len(manifest.network.layers), 'layer')}."
    yield "Parse", did, spent.pop("parse", None)
    did = f"TensorRT compiled them to {counted(manifest.network.launches, 'kernel')}."
    yield "Build", did, spent.pop("build", None)
    if "variants" in spent:
        yield "Variants", "Further engines were built, to see what the changes bring.", spent.pop("variants")
    yield "Compare", _compared(manifest), spent.pop("compare", None)
    for name, rest in spent.items():
        yield name.capitalize(), "", rest


def _cleaned(manifest: Manifest) -> str:
    done = cleaning_text(manifest.cleaning)
    return f"{done}." if done else "There was nothing to clean."


def _rewritten(manifest: Manifest) -> str:
    rules = Counter(change.rule for change in manifest.changes).most_common()
    if not rules:
        return "Nothing had to be changed."
    proved = "proved" if len(manifest.changes) == 1 else "each proved"
    return f"{counted(len(manifest.changes), 'change')}, {proved}: {', '.join(f'{n:,} {rule}' for rule, n in rules)}."


def _compared(manifest: Manifest) -> str:
    comparison = manifest.comparison
    if comparison is None:
        return "Left out."
    names = {"rewriting": "the rewritten model", "network:rewriting": "TensorRT's network of it"}
    labels = " and ".join(names.get(c.label, c.label) for c in comparison.candidates)
    return f"{labels[:1].upper()}{labels[1:]} against {comparison.reference}, at {', '.join(comparison.at) or 'no inputs'}."
