"""Changes that the model can do without: which those are, and what is said of them when they are undone.

TensorRT takes a model without such a change and computes it rightly. So nothing that happens to one ends a build.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, Undone

_SHOWN = 8
_PACKAGE = Path(__file__).parents[1]


def is_optional(found: Match) -> bool:
    """True for a match that TensorRT takes and computes rightly as it is.

    Where the rule cannot say so for an exception of its own, it counts as optional: the audit of what is left, and the
    comparison of the finished network, do not rely on any rule.
    """
    if found.rule.optional is None:
        return False
    try:
        return found.rule.optional(found)
    except Exception:
        return True


def left_out(found: Match, reason: str) -> Undone:
    return Undone(found.rule.name, describe(found.site), reason, found.site.outputs[0].name)


def breakage(error: Exception) -> str:
    """An exception that nobody expected, with the place in this package that it comes from."""
    text = " ".join(str(error).split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


def undone_warning(undone: Sequence[Undone]) -> str:
    """One warning about all that was undone, a line for each rule and reason. What went wrong is worth a report."""
    lines = undone_lines(undone)
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    if any(one.provable for one in undone):
        what, advice = "could not be made", "please report this, with the model if you can"
    else:
        what, advice = "could not be proved", "a build profile with sizes that the model takes may allow them"
    said = f"{len(undone)} change(s) that the model can do without {what}, and it stays as it was there; {advice}:"
    return "\n".join([said, *lines[:_SHOWN], *more])


def undone_lines(undone: Iterable[Undone]) -> list[str]:
    nodes: dict[tuple[str, str], list[str]] = {}
    for one in undone:
        nodes.setdefault((one.rule, one.reason), []).append(one.node)
    return [f"{rule} at {_listed(names)}: {reason}" for (rule, reason), names in nodes.items()]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
