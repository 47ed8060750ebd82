"""The rules, in the order in which they are tried. The first that fits a node takes it."""

from __future__ import annotations

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import (
    batchnorm_to_scale_shift,
    fold_batchnorm_conv,
    fold_batchnorm_conv_transpose,
    fold_batchnorm_gemm,
)

RULES: tuple[Rule, ...] = (
    fold_batchnorm_conv.RULE,
    fold_batchnorm_conv_transpose.RULE,
    fold_batchnorm_gemm.RULE,
    batchnorm_to_scale_shift.RULE,
)


def rule_named(name: str) -> Rule:
    """The rule called ``name``; raises ``UsageProblem`` with the nearest names otherwise."""
    for rule in RULES:
        if rule.name == name:
            return rule
    raise UsageProblem(f"there is no rule named {name!r}", hint=f"rules: {', '.join(rule.name for rule in RULES)}")
