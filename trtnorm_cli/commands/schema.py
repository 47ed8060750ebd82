"""``trtnorm schema``: the JSON Schema of the build profile, of the plan of a batch, or of what commands print."""

from __future__ import annotations

import click

# In the words of ``report.json_schemas``, which ``--help`` must not import.
NAMES = (
    "profile", "plan", "manifest", "export", "rewrite", "inspect-model", "inspect-network", "inspect-engine", "inspect-module",
    "diff", "compare", "batch", "init", "doctor", "rules", "rule", "error",
)  # fmt: skip


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES), default="profile", metavar="[NAME]")
@click.option("--batch", is_flag=True, help="Print the schema of the plan of `trtnorm batch`, as `trtnorm schema plan` does.")
def command(name: str, batch: bool) -> None:
    """Print the JSON Schema of the build profile, or that of NAME. Editors complete and check profiles with it.

    Put a line such as `# yaml-language-server: $schema=profile.schema.json` first in the profile. The repository has the
    schemas as configs/profile.schema.json and configs/plan.schema.json, and those of outputs in docs/schemas.

    NAME is profile or plan; manifest or export, which are files that `build` and `export` write and print; or an output of
    --json: rewrite, inspect-model, inspect-network, inspect-engine, inspect-module, diff, compare, batch, init, doctor, rules,
    rule, error.

    \b
    Example:
      trtnorm schema > profile.schema.json
      trtnorm schema manifest
    """
    import json

    click.echo(json.dumps(_schema("plan" if batch else name), indent=2))


def _schema(name: str) -> dict[str, object]:
    if name == "plan":
        from trtnorm_cli.batch.plan import json_schema
    elif name == "profile":
        from trtnorm_cli.profile.model import json_schema
    else:
        from trtnorm_cli.report.json_schemas import schema_of

        return schema_of(name)
    return json_schema()
