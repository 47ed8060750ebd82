"""``trtnorm rules``: the ordered table of rules, and one rule in full."""

from __future__ import annotations

import click

EXAMPLE = """List the rewrite rules in the order in which they are tried.

    \b
    Example:
      trtnorm rules
      trtnorm rules show fold-batchnorm-conv
    """


@click.group("rules", invoke_without_command=True, help=EXAMPLE)
@click.pass_context
def command(context: click.Context) -> None:
    if context.invoked_subcommand is not None:
        return
    from trtnorm_cli.report.console import console, table
    from trtnorm_cli.rewrite.rules import RULES

    rows = [(number, rule.name, rule.doc.strip().splitlines()[0]) for number, rule in enumerate(RULES, 1)]
    console().print(table("", ("#", "rule", "what it does"), rows))


@command.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Show one rule: its algebra, its source, and what must hold before it is applied.

    \b
    Example:
      trtnorm rules show fold-batchnorm-conv
    """
    from trtnorm_cli.rewrite.rules import rule_named

    rule = rule_named(name)
    click.echo(f"{rule.name}\n\n{rule.doc.strip()}\n\nApplied only when")
    for condition in (*rule.preconditions, *([rule.reach] if rule.reach is not None else [])):
        click.echo(f"  - {' '.join((condition.__doc__ or '').split())}")
    click.echo(f"\nThe outputs before and after may differ by {rule.tolerance:g} of the largest value in float32.")
