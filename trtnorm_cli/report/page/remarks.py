"""The warnings and notes of a build, with what to do about them."""

from __future__ import annotations

from collections.abc import Iterator

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.export import export_warnings
from trtnorm_cli.report.precision import precision_notes
from trtnorm_cli.tensorrt.manifest import Manifest


@dataclass(frozen=True)
class Remark:
    """A warning, or a note that asks for less, with where it comes from and how to fix it."""

    is_warning: bool
    origin: str
    text: str
    fix: str = ""


def remarks_of(manifest: Manifest) -> list[Remark]:
    """Warnings first, each once."""
    found = list(dict.fromkeys(_remarks(manifest)))
    return [one for one in found if one.is_warning] + [one for one in found if not one.is_warning]


def _remarks(manifest: Manifest) -> Iterator[Remark]:
    if manifest.export is not None:
        yield from (_split(True, "export", text) for text in export_warnings(manifest.export))
        yield from (_split(False, "export", text) for text in manifest.export.notes)
    yield from (_split(True, "rewriting", text) for text in manifest.rewrite_warnings)
    for undone in manifest.undone:
        yield Remark(False, f"rule {undone.rule}", f"{undone.node} was left as it is: {undone.reason}")
    for effect in manifest.effects:
        yield Remark(True, "asked for", str(effect))
    if manifest.comparison is not None:
        yield from (Remark(True, "comparison", f"not compared: {text}") for text in manifest.comparison.not_compared)
    if manifest.optimize.more:
        yield Remark(False, "kernels", manifest.optimize.more)
    yield from (_split(False, "build", text) for text in manifest.warnings)
    if manifest.precision is not None:
        yield from (Remark(False, "precision", text) for text in precision_notes(manifest.precision))


def _split(is_warning: bool, origin: str, text: str) -> Remark:
    """A warning whose first line says what is wrong, and the rest how to fix it."""
    first, *rest = text.split("\n")
    return Remark(is_warning, origin, first, " ".join(line.strip() for line in rest))
