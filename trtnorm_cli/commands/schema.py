"""``trtnorm schema``: the JSON Schema of the build profile."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the build profile, with which editors complete and check it.

    The same is in configs/profile.schema.json; an editor finds it through a first line such as
    `# yaml-language-server: $schema=profile.schema.json`.

    \b
    Example:
      trtnorm schema > profile.schema.json
    """
    import json

    from trtnorm_cli.profile.model import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
