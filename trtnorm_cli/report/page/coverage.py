"""The fate of each normalization of the model."""

from __future__ import annotations

from collections import Counter

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.manifest import Manifest

_LEFT = "left as it is"


@dataclass(frozen=True)
class Norm:
    """A normalization: where it is, what it is, the rule that took it or ``kept``, and the reasons."""

    node: str
    kind: str
    taken: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """Every normalization, and how many of each kind met which fate."""

    norms: tuple[Norm, ...]
    fates: tuple[tuple[str, str, int], ...]
    counts: tuple[tuple[str, int], ...]

    @staticmethod
    def of(manifest: Manifest) -> Coverage:
        found = manifest.normalizations
        rules = {change.rule for change in manifest.changes}
        norms = [_norm(each.node, each.operator, each.outcome, rules) for each in found.outcomes]
        norms += [_norm(each.node, f"{each.kind} in pieces", each.outcome, rules) for each in found.composite]
        fates = Counter((norm.kind, norm.taken) for norm in norms)
        counts = (*found.nodes.items(), *((f"{kind} in pieces", count) for kind, count in found.pieces.items()))
        return Coverage(tuple(norms), tuple((*fate, count) for fate, count in fates.most_common()), counts)


def _norm(node: str, kind: str, outcome: tuple[str, ...], rules: set[str]) -> Norm:
    taken = [line for line in outcome if line in rules]
    reasons = tuple(line for line in outcome if line not in rules)
    return Norm(node, kind, ", then ".join(taken) or _LEFT, reasons)
