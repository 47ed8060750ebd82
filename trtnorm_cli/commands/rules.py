"""``trtnorm rules``: the ordered table of rules, and one rule in full."""

from __future__ import annotations

import click

from trtnorm_cli.commands.options import json_option

EXAMPLE = """List the rewrite rules in the order in which they are tried.

    \b
    Example:
      trtnorm rules
      trtnorm rules show fold-batchnorm-conv
    """


@click.group("rules", invoke_without_command=True, help=EXAMPLE)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("--json comes after 'show'", context)
        return
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.rules import print_rules, rules_record
    from trtnorm_cli.rewrite.rules import RULES

    click.echo(json_text("rules", rules_record(RULES).to_json())) if as_json else print_rules(RULES)


@command.command("show")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one rule: its algebra, its source, and what must hold before it is applied.

    \b
    Example:
      trtnorm rules show fold-batchnorm-conv
    """
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.rules import rule_record, rule_text
    from trtnorm_cli.rewrite.rules import RULES, rule_named

    rule = rule_named(name)
    record = rule_record(rule, RULES.index(rule) + 1 if rule in RULES else 0)
    click.echo(json_text("rule", record.to_json()) if as_json else rule_text(rule))
