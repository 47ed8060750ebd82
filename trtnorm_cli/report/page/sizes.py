"""The sizes that the engine takes, against those that the model can have at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.fit import ProfileRecord
from trtnorm_cli.profile.memory import MemoryRecord
from trtnorm_cli.profile.prove import SizeRecord
from trtnorm_cli.report.page import plots
from trtnorm_cli.report.page.words import shape
from trtnorm_cli.tensorrt.manifest import Manifest

# More intervals than this cannot be told apart in a plot; then all that they span is drawn.
_MOST_INTERVALS = 40
_MOST_LISTED = 8
# A plot shows legal values up to this part of the range beyond its ends.
_BEYOND = 0.15


@dataclass(frozen=True)
class Input:
    """The shapes of an input, or the elements of one that holds sizes."""

    name: str
    min: str
    opt: str
    max: str


@dataclass(frozen=True)
class ProfileSizes:
    """One optimization profile."""

    name: str
    inputs: tuple[Input, ...]
    sizes: tuple[SizeRecord, ...]
    memory: MemoryRecord | None
    plot: str

    @property
    def is_fixed(self) -> bool:
        """True where the engine takes one size alone."""
        return all(one.min == one.max for one in self.inputs)


@dataclass(frozen=True)
class Sizes:
    """All profiles, with the notes of their proof."""

    profiles: tuple[ProfileSizes, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(manifest: Manifest) -> Sizes:
        proof = manifest.proof
        profiles = []
        for one in manifest.optimization_profiles:
            sizes = tuple(size for size in proof.sizes if size.profile == one.name) if proof else ()
            memory = proof.memory.get(one.name) if proof else None
            profiles.append(ProfileSizes(one.name, tuple(_inputs(one)), sizes, memory, _plot(sizes)))
        return Sizes(tuple(profiles), proof.notes if proof else ())


def rule_of(size: SizeRecord) -> str:
    """The legal values of a size in words."""
    legal = size.legal
    if legal is not None and legal.residues == (0,) and legal.modulus > 1 and legal.most is None and not legal.extra:
        return f"multiples of {legal.modulus}" + (f" from {legal.least}" if legal.least > legal.modulus else "")
    if legal is not None and 1 < len(legal.residues) <= _MOST_LISTED and legal.most is None and not legal.extra:
        *listed, last = map(str, legal.residues)
        least = f", from {legal.least}" if legal.least > legal.modulus else ""
        return f"remainder {', '.join(listed)} or {last} when divided by {legal.modulus}{least}"
    return size.text.removeprefix(f"{size.name} must be ").removeprefix(f"{size.name} must satisfy ") or "any"


def _inputs(one: ProfileRecord) -> Iterator[Input]:
    for name, shapes in one.inputs.items():
        yield Input(name, shape(shapes.min), shape(shapes.opt), shape(shapes.max))
    for name, values in one.values.items():
        yield Input(f"elements of {name}", *(", ".join(map(str, each)) for each in (values.min, values.opt, values.max)))


def _plot(sizes: Sequence[SizeRecord]) -> str:
    values = [plots.Span(size.name, size.min, size.opt, size.max, _legal(size)) for size in sizes]
    return plots.spans(values, "size") if values else ""


def _legal(size: SizeRecord) -> tuple[tuple[float, float], ...]:
    """The legal values in and around the range of a size, as intervals."""
    legal, margin = size.legal, max(2, round((size.max - size.min) * _BEYOND))
    if legal is None:
        return ()
    first, last = max(legal.least, size.min - margin), min(legal.most or size.max + margin, size.max + margin)
    if legal.modulus == 1:
        found = [(float(first), float(last))] if legal.residues else []
    else:
        values = [value for value in range(first, last + 1) if value % legal.modulus in legal.residues]
        whole = [(float(values[0]), float(values[-1]))] if values else []
        found = [(value - 0.25, value + 0.25) for value in values] if len(values) <= _MOST_INTERVALS else whole
    return (*found, *((value - 0.25, value + 0.25) for value in legal.extra if size.min - margin <= value <= size.max + margin))
