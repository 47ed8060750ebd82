"""``trtnorm doctor``: the installed versions, what they can build, and what is missing."""

from __future__ import annotations

import click

from trtnorm_cli.commands.options import json_option


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show versions, TensorRT backends, GPU and driver, what each backend can do here, and what to install.

    Exits with 0 when at least one backend can build on this machine, otherwise with 2.

    \b
    Example:
      trtnorm doctor
    """
    from trtnorm_cli.report.doctor import print_findings
    from trtnorm_cli.tensorrt.doctor import Findings, examine

    found = examine()
    if as_json:
        from trtnorm_cli.report.json_output import json_text

        click.echo(json_text("doctor", Findings.load(found).to_json()))
    else:
        from trtnorm_cli.report.console import console

        print_findings(console(), found)
    return 0 if any(backend["can_build"] for backend in found["backends"]) else 2
