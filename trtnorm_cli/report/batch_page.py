"""The index of a batch: every job with its state, and links to engines and reports, as one page of HTML."""

from __future__ import annotations

from pathlib import Path

from trtnorm_cli.files import cannot_write, write_in_one_step
from trtnorm_cli.records.batch import UNSUCCESSFUL, BatchRecord
from trtnorm_cli.report.page import words
from trtnorm_cli.report.page.page import environment, template_file


def index_of(batch: BatchRecord) -> str:
    """The page as HTML."""
    from markupsafe import Markup

    text = environment().get_template("batch.html.j2").render(
        title=f"Batch {Path(batch.plan).name}",
        style=Markup(template_file("page.css")),
        batch=batch,
        counted=", ".join(f"{number} {state}" for state, number in batch.counts.items()),
        failures=[job for job in batch.jobs if job.state in UNSUCCESSFUL],
    )  # fmt: skip
    return words.fit(text)


def write_index(batch: BatchRecord, page: Path) -> None:
    """Raises ``UsageProblem`` or ``NoRoom`` where the page cannot be written."""
    try:
        write_in_one_step(index_of(batch), page)
    except OSError as error:
        raise cannot_write("the index", page, error, "choose another folder with -o") from error
