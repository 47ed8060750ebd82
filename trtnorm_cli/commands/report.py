"""``trtnorm report``: the report on an engine as one page of HTML."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.commands.options import progress_option
from trtnorm_cli.report.progress import ProgressChoice, shown_progress


@click.command("report")
@click.argument("engine", type=click.Path(path_type=Path), metavar="OUT.engine")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE.html",
    help="Write the page to this file. Default: OUT.engine.html beside the engine.",
)  # fmt: skip
@progress_option
def command(engine: Path, output: Path | None, progress: ProgressChoice) -> None:
    """Write the report on an engine as one page of HTML.

    It shows what was changed and why that is right, where time will go, the sizes that the engine takes, and how far results
    are from the model's. All of it comes from the manifest OUT.engine.json; the engine itself is not opened. The page needs no
    network. Needs the extra `report`.

    \b
    Example:
      trtnorm report resnet18.engine -o report.html
    """
    from trtnorm_cli.report.page.write import require_report_possible, write_report
    from trtnorm_cli.tensorrt.engine_file import manifest_beside

    path, manifest = manifest_beside(engine)
    page = output or path.with_suffix(".html")
    require_report_possible(page, [engine, path])
    with shown_progress("report", progress):
        write_report(manifest, page)
    click.echo(page)
