"""A batch as JUnit's XML, which CI systems show: one test case a job."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from trtnorm_cli.files import cannot_write, write_in_one_step
from trtnorm_cli.records.batch import UNSUCCESSFUL, BatchRecord, JobRecord
from trtnorm_cli.report.xml_text import plain


def write_junit(batch: BatchRecord, path: Path) -> None:
    """Raises ``UsageProblem`` or ``NoRoom`` where the file cannot be written."""
    try:
        write_in_one_step(junit_of(batch), path)
    except OSError as error:
        raise cannot_write("the JUnit file", path, error, "choose another name") from error


def junit_of(batch: BatchRecord) -> str:
    """The text of the file."""
    failures = sum(job.state == "failed" for job in batch.jobs)
    skipped = sum(job.state == "cancelled" for job in batch.jobs)
    about = {"name": f"trtnorm batch {Path(batch.plan).name}", "tests": str(len(batch.jobs)), "failures": str(failures)}
    suite = ElementTree.Element("testsuite", {**about, "skipped": str(skipped), "time": f"{batch.seconds:.3f}"})
    for job in batch.jobs:
        _case(suite, job)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, job: JobRecord) -> None:
    # Of an engine that was there already no time was spent.
    seconds = job.seconds if job.state != "up to date" else 0.0
    case = ElementTree.SubElement(suite, "testcase", {"classname": job.model, "name": job.name, "time": f"{seconds:.3f}"})
    if job.state in UNSUCCESSFUL:
        problem = job.problem
        message = "" if problem is None else plain(problem.summary)
        kind = "skipped" if job.state == "cancelled" else "failure"
        element = ElementTree.SubElement(case, kind, {"message": message or job.state})
        if problem is not None:
            element.text = plain("\n".join(text for text in (problem.where, problem.hint) if text))
    if job.warnings:
        ElementTree.SubElement(case, "system-out").text = plain("\n".join(job.warnings))
