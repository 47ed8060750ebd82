"""``trtnorm batch``: many models for many targets."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option, memory_option, verbosity_options
from trtnorm_cli.report.verbosity import Verbosity

_FILE = click.Path(path_type=Path)


@click.command("batch")
@click.argument("plan", type=_FILE, metavar="PLAN.yaml")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), metavar="N",
    help="Build with N workers on this machine. Default: as many as cores and memory allow.",
)  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Build on the workers of this Dask scheduler, as in tls://host:8786.")
@click.option("--tls-ca", type=_FILE, metavar="FILE", help="Match the scheduler against this certificate authority.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Show this certificate to the scheduler.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Read the key of that certificate from this file.")
@click.option(
    "--store", metavar="URL",
    help="Save results in this folder, or behind a URL such as s3://bucket/path. Default: .store in the output folder.",
)  # fmt: skip
@click.option(
    "--output", "-o", type=_FILE, metavar="DIR",
    help="Write engines, manifests and reports to this folder. Default: PLAN's name in the current folder.",
)  # fmt: skip
@click.option("--only", multiple=True, metavar="PATTERN", help="Build only jobs with such names, as in 'resnet*'. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Show the jobs, what is up to date, and what each will cost, and build nothing.")
@click.option("--resume", is_flag=True, help="Leave jobs that failed before as they are, and build what is missing.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
    help="Allow workers this long to come before a job that none can serve fails. Default: not at all.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Stop each builder, or run of a model, after this many seconds.",
)  # fmt: skip
@memory_option
@click.option("--no-report", is_flag=True, help="Skip the pages on the engines.")
@click.option("--junit", type=_FILE, metavar="FILE.xml", help="Write the outcome as JUnit's XML to this file, for CI.")
@json_option
@verbosity_options
def command(
    plan: Path,
    jobs: int | None,
    scheduler: str | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    store: str | None,
    output: Path | None,
    only: tuple[str, ...],
    dry_run: bool,
    resume: bool,
    wait: float,
    timeout: float | None,
    memory: int | None,
    no_report: bool,
    junit: Path | None,
    as_json: bool,
    verbosity: Verbosity,
) -> int:
    """Build engines of all models in PLAN.yaml, in each precision and for each target that it names.

    Equal work is done once, and what is in the store is not done again, also after an interrupt. One model that fails stops no
    other. Writes batch.json and index.html beside the engines. Exits with 1 when a job failed. Needs the extra `batch`.

    \b
    Example:
      trtnorm batch plan.yaml -j 4
      trtnorm batch plan.yaml --scheduler tcp://10.0.0.5:8786 --store s3://engines/store
    """
    from trtnorm_cli.batch.cluster import Tls
    from trtnorm_cli.batch.session import BatchOptions, reports_missing, run_batch
    from trtnorm_cli.report.batch import BatchProgress, print_batch, print_plan
    from trtnorm_cli.report.json_output import json_text

    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs is for workers on this machine; those of --scheduler are started elsewhere")
    options = BatchOptions(
        jobs=jobs,
        scheduler=scheduler,
        tls=Tls(tls_ca, tls_cert, tls_key),
        store=store,
        output=output,
        resume=resume,
        dry_run=dry_run,
        wait_s=wait,
        timeout_s=timeout,
        memory_bytes=memory,
        only=only,
        with_report=not no_report,
    )
    if not (no_report or dry_run) and (missing := reports_missing()) and verbosity is not Verbosity.QUIET:
        click.echo(f"trtnorm: no reports, as {', '.join(missing)} is not installed: pip install 'trtnorm[report]'", err=True)
    with BatchProgress(verbosity) as progress:
        batch = run_batch(plan, options, progress)
    if junit is not None:
        from trtnorm_cli.report.junit import write_junit

        write_junit(batch, junit)
    if as_json:
        click.echo(json_text("batch", batch.to_json()))
    elif dry_run:
        print_plan(batch)
    else:
        print_batch(batch, str(output or plan.stem), verbosity)
    return 0 if batch.succeeded or dry_run else 1
