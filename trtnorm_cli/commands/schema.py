"""``trtnorm schema``: the JSON Schema of the build profile, or of the plan of a batch."""

from __future__ import annotations

import click


@click.command("schema")
@click.option("--batch", is_flag=True, help="Print the schema of the plan of `trtnorm batch` instead.")
def command(batch: bool) -> None:
    """Print the JSON Schema of the build profile. Editors complete and check profiles with it.

    Put a line such as `# yaml-language-server: $schema=profile.schema.json` first in the profile. The repository has the
    schemas as configs/profile.schema.json and configs/plan.schema.json.

    \b
    Example:
      trtnorm schema > profile.schema.json
    """
    import json

    if batch:
        from trtnorm_cli.batch.plan import json_schema
    else:
        from trtnorm_cli.profile.model import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
