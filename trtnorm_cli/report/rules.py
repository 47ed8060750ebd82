"""The rewrite rules, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record
from trtnorm_cli.report.console import console, table
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import RULES


def print_rules(rules: Sequence[Rule]) -> None:
    """One row for each rule, in the order in which they are tried."""
    rows = [(number, rule.name, _headline(rule)) for number, rule in enumerate(rules, 1)]
    console().print(table("", ("#", "rule", "what it does"), rows))


@dataclass(frozen=True)
class RuleSummary(Record):
    """One rule in short. ``number`` is its place in the order in which rules are tried."""

    number: int
    name: str
    what_it_does: str
    because: str
    optional: bool
    tolerance: float


@dataclass(frozen=True)
class RulesRecord(Record):
    """All rules, in the order in which they are tried."""

    rules: tuple[RuleSummary, ...]


@dataclass(frozen=True)
class RuleRecord(RuleSummary):
    """One rule in full: its algebra and source, and what must hold before it is applied."""

    document: str
    applied_only_when: tuple[str, ...]


def rules_record(rules: Sequence[Rule]) -> RulesRecord:
    """The table of rules as a record."""
    return RulesRecord(tuple(RuleSummary(number, *_summary(rule)) for number, rule in enumerate(rules, 1)))


def rule_text(rule: Rule) -> str:
    """One rule: its algebra, its source, and what must hold before it is applied."""
    conditions = "\n".join(f"  - {condition}" for condition in _conditions(rule))
    differ = f"The outputs before and after may differ by {rule.tolerance:g} of the largest value in float32."
    return f"{rule.name}\n\n{rule.doc.strip()}\n\nApplied only when\n{conditions}\n\n{differ}"


def rule_record(rule: Rule, number: int) -> RuleRecord:
    """One rule as a record."""
    return RuleRecord(number, *_summary(rule), rule.doc.strip(), tuple(_conditions(rule)))


def headline_of(name: str) -> str | None:
    """The sentence that says what the rule of this name does; None for a rule that this release does not have."""
    return next((_headline(rule) for rule in RULES if rule.name == name), None)


def _summary(rule: Rule) -> tuple[str, str, str, bool, float]:
    return rule.name, _headline(rule), rule.because, rule.optional is not None, rule.tolerance


def _headline(rule: Rule) -> str:
    return rule.doc.strip().splitlines()[0]


def _conditions(rule: Rule) -> list[str]:
    held = (*rule.preconditions, *rule.value_preconditions, *([rule.extent] if rule.extent is not None else []))
    return [" ".join((condition.__doc__ or "").split()) for condition in held]
