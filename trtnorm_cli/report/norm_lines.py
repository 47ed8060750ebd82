"""One line for a normalization, or for many that are alike, with what becomes of them in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.node_names import common_pattern
from trtnorm_cli.report.short_names import shortened_apart
from trtnorm_cli.report.wrapping import wrapped

_SHOWN = 3
_SHOWN_REASONS = 2
# So many alike have a line each.
_FEW = 3
_INDENT = 2
# A name that is shortened to stay in its line keeps so many columns.
_LEAST_NAME = 40
_RULE = re.compile(r"[a-z][a-z0-9-]*")
_REFUSED = re.compile(rf"({_RULE.pattern}): (.*)", re.DOTALL)

Item = TypeVar("Item")
# The first line of a rule's document, or None where the rule is not known.
HeadlineOf = Callable[[str], str | None]


@dataclass(frozen=True)
class NormLine:
    """A normalization as its line says it: ``kind (facts), name: outcome``. Lines with one ``key`` are alike."""

    kind: str
    name: str
    fact: str
    outcome: tuple[str, ...]
    key: Hashable
    more_facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Shown:
    """A line before its name has been made to fit."""

    start: str
    name: str
    end: str
    is_listing: bool = False

    def room(self, width: int) -> int:
        """The columns that the name may have, behind ``start`` or, where these are few, on a line of its own."""
        beside, below = width - _INDENT - cell_len(self.start) - 1, width - 2 * _INDENT - 1
        return beside if beside >= min(_LEAST_NAME, below) else below


def print_norm_lines(out: Console, title: str, lines: Sequence[NormLine], headline_of: HeadlineOf) -> None:
    """Print a line for each normalization, and one for those that are alike where they are many."""
    out.print(f"\n{title}", style="bold")
    shown = []
    for group in alike(lines, lambda line: (line.kind, line.key, line.more_facts)):
        for part in [[line] for line in group] if len(group) <= _FEW else [group]:
            shown.append(_line_of(part, headline_of))
    room = min((line.room(out.width) for line in shown), default=0)
    for line, name in zip(shown, shortened_apart([line.name for line in shown], room), strict=True):
        fits = line.is_listing or cell_len(line.name) <= line.room(out.width)
        text = f"{' ' * _INDENT}{line.start}{line.name if fits else name}" + (f": {line.end}" if line.end else "")
        out.print("\n".join(wrapped(text, out.width)), soft_wrap=True)


def _line_of(group: Sequence[NormLine], headline_of: HeadlineOf) -> _Shown:
    """``KIND (FACTS), NAME: OUTCOME`` of one, or the same of many with their number and a pattern for their names."""
    first = group[0]
    facts = "; ".join([text for text in (facts_text(line.fact for line in group), *first.more_facts) if text])
    start = f"{len(group)} × {first.kind}" if len(group) > 1 else first.kind
    start += f" ({facts}), " if facts else ", "
    names = [line.name for line in group]
    name = first.name if len(group) == 1 else common_pattern(names)
    end = outcome_text(first.outcome, headline_of)
    return _Shown(start, listed(names), end, is_listing=True) if name is None else _Shown(start, name, end)


def facts_text(facts: Iterable[str]) -> str:
    """``768``, ``64, 128`` or ``64 to 1024``."""
    every = list(dict.fromkeys(fact for fact in facts if fact))
    if len(every) > _SHOWN and all(fact.isdecimal() for fact in every):
        sizes = sorted(map(int, every))
        return f"{sizes[0]} to {sizes[-1]}"
    return listed(every)


def outcome_text(outcome: Sequence[str], headline_of: HeadlineOf) -> str:
    """The outcome of a normalization in words: rewritten how and by which rule, or left as it is and why."""
    taken = [line for line in outcome if _RULE.fullmatch(line)]
    refused = [found for line in outcome if (found := _REFUSED.fullmatch(line))]
    words = [line for line in outcome if not _RULE.fullmatch(line) and not _REFUSED.fullmatch(line)]
    texts = [f"rewritten: {'; '.join(_rule_words(rule, headline_of) for rule in taken)}"] if taken else []
    texts += words
    shown = [] if taken else refused[:_SHOWN_REASONS] if len(refused) <= _SHOWN_REASONS else refused[-1:]
    reasons = [f"{found[2]} ({found[1]})" for found in shown]
    if reasons and not texts:
        texts.append("no rule takes it")
        reasons[0] = f"{texts.pop()}: {reasons[0]}"
    more = len(refused) - len(shown)
    if more and not taken:
        reasons.append(f"and {more} more reasons, with --all" if more > 1 else "and one more reason, with --all")
    return "; ".join([*texts, *reasons])


def outcome_key(outcome: Sequence[str]) -> tuple[str, ...]:
    """The outcome without what is about one node alone: reasons of a rule differ in names and numbers."""
    return tuple(line.partition(":")[0] if _REFUSED.fullmatch(line) else line for line in outcome)


def _rule_words(rule: str, headline_of: HeadlineOf) -> str:
    headline = headline_of(rule)
    return rule if headline is None else f"{headline[:1].lower()}{headline[1:].removesuffix('.')} ({rule})"


def alike(items: Iterable[Item], kind: Callable[[Item], Hashable]) -> list[list[Item]]:
    """``items`` in groups of one kind, in the order of their first members."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(kind(item), []).append(item)
    return list(groups.values())


def listed(names: Iterable[str]) -> str:
    """``a, b, c and 17 more``, each name once."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
