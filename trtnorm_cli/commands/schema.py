"""``trtnorm schema``: the JSON Schema of the build profile."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the build profile. Editors complete and check profiles with it.

    Put a line such as `# yaml-language-server: $schema=profile.schema.json` first in the profile. The repository has the
    schema as configs/profile.schema.json.

    \b
    Example:
      trtnorm schema > profile.schema.json
    """
    import json

    from trtnorm_cli.profile.model import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
