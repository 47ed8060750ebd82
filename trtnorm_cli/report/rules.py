"""The rewrite rules, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtnorm_cli.report.console import console, table
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import RULES


def print_rules(rules: Sequence[Rule]) -> None:
    """One row for each rule, in the order in which they are tried."""
    rows = [(number, rule.name, _headline(rule)) for number, rule in enumerate(rules, 1)]
    console().print(table("", ("#", "rule", "what it does"), rows))


def rules_json(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [{"number": number, **_summary(rule)} for number, rule in enumerate(rules, 1)]


def rule_text(rule: Rule) -> str:
    """One rule: its algebra, its source, and what must hold before it is applied."""
    conditions = "\n".join(f"  - {condition}" for condition in _conditions(rule))
    differ = f"The outputs before and after may differ by {rule.tolerance:g} of the largest value in float32."
    return f"{rule.name}\n\n{rule.doc.strip()}\n\nApplied only when\n{conditions}\n\n{differ}"


def rule_json(rule: Rule) -> dict[str, Any]:
    """The same as JSON values."""
    return {**_summary(rule), "document": rule.doc.strip(), "applied_only_when": _conditions(rule)}


def headline_of(name: str) -> str | None:
    """The sentence that says what the rule of this name does; None for a rule that this release does not have."""
    return next((_headline(rule) for rule in RULES if rule.name == name), None)


def _summary(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "what_it_does": _headline(rule),
        "because": rule.because,
        "optional": rule.optional is not None,
        "tolerance": rule.tolerance,
    }


def _headline(rule: Rule) -> str:
    return rule.doc.strip().splitlines()[0]


def _conditions(rule: Rule) -> list[str]:
    held = (*rule.preconditions, *([rule.extent] if rule.extent is not None else []))
    return [" ".join((condition.__doc__ or "").split()) for condition in held]
