"""The changes to the model by rule: drawing, algebra and check of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.page import plots
from trtnorm_cli.report.page.algebra import Algebra, algebra_of
from trtnorm_cli.report.page.drawing import Drawing, Drawings
from trtnorm_cli.report.page.words import shape
from trtnorm_cli.rewrite.region import Region, RegionNode
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.manifest import Manifest

_FEWEST_IN_PLOT = 3


@dataclass(frozen=True)
class Listed:
    """A node of a region in words: what it is, what it reads and makes."""

    operator: str
    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """A region before or after the change."""

    title: str
    drawing: Drawing | None
    nodes: tuple[Listed, ...]


@dataclass(frozen=True)
class Rewrite:
    """One change with its number on the page, and the shapes of its check in words."""

    number: int
    change: Change
    sides: tuple[Side, ...]
    shapes: str


@dataclass(frozen=True)
class RuleUsed:
    """The changes that one rule made."""

    name: str
    because: str
    algebra: Algebra | None
    rewrites: tuple[Rewrite, ...]

    @property
    def worst(self) -> float:
        """The largest error of a check."""
        return max(one.change.check.max_rel for one in self.rewrites)


@dataclass(frozen=True)
class Rewrites:
    """All changes. ``checks`` is a plot of their errors."""

    rules: tuple[RuleUsed, ...]
    checks: str

    @staticmethod
    def of(manifest: Manifest, drawings: Drawings) -> Rewrites:
        names = list(dict.fromkeys(change.rule for change in manifest.changes))
        numbered = list(enumerate(manifest.changes, 1))
        rules = []
        for name in names:
            own = [(number, change) for number, change in numbered if change.rule == name]
            algebra = algebra_of(manifest.rules[name]) if name in manifest.rules else None
            rewrites = tuple(_rewrite(number, change, drawings) for number, change in own)
            rules.append(RuleUsed(name, own[0][1].because, algebra, rewrites))
        return Rewrites(tuple(rules), _checks(manifest.changes))


def _checks(changes: Sequence[Change]) -> str:
    values = [plots.Dot(change.node, change.check.max_rel, change.check.tolerance) for change in changes]
    return plots.strip(values, "error / limit") if len(values) >= _FEWEST_IN_PLOT else ""


def _rewrite(number: int, change: Change, drawings: Drawings) -> Rewrite:
    shapes = ", ".join(f"{name} {shape(sizes)}" for name, sizes in change.check.shapes.items())
    return Rewrite(number, change, () if change.region is None else _sides(change.region, drawings), shapes)


def _sides(region: Region, drawings: Drawings) -> tuple[Side, ...]:
    return tuple(
        Side(title, drawings.of(nodes, region.constants, title), tuple(_listed(node, region.constants) for node in nodes))
        for title, nodes in (("Before", region.before), ("After", region.after))
    )


def _listed(node: RegionNode, constants: Mapping[str, str]) -> Listed:
    reads = tuple(f"{name} ({constants[name]})" if constants.get(name) else name for name in node.inputs if name)
    return Listed(node.operator, node.name, reads, tuple(name for name in node.outputs if name))
