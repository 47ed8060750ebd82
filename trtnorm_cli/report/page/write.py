"""Write the report of an engine to a file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.files import cannot_write, require_free, write_in_one_step
from trtnorm_cli.progress import stage

if TYPE_CHECKING:
    from trtnorm_cli.tensorrt.manifest import Manifest

# What the page is made with, by the name under which it is imported.
LIBRARIES = {"jinja2": "Jinja2", "grandalf": "grandalf", "vl_convert": "vl-convert-python"}
_BEGINNING = "<!doctype html>"


def require_report_possible(page: Path, sources: list[Path]) -> None:
    """Raise ``UsageProblem`` where no report can be written to ``page``, which must not be one of ``sources``."""
    missing = [package for module, package in LIBRARIES.items() if find_spec(module) is None]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed, and needed for a report"
        raise UsageProblem(what, str(page), "pip install 'trtnorm[report]'")
    require_free([page], sources)
    if not page.parent.is_dir():
        raise UsageProblem("there is no such folder", str(page.parent), "create it, or choose another one")
    if page.exists() and not _is_page(page):
        raise UsageProblem("the file is there already, and is no page", str(page), "choose another name, or remove it")


def write_report(manifest: Manifest, page: Path) -> None:
    """Write the report on the engine of ``manifest`` to ``page``."""
    from trtnorm_cli.report.page.page import page_of

    with stage("page"):
        text = page_of(manifest)
    try:
        write_in_one_step(text, page)
    except OSError as error:
        raise cannot_write("the report", page, error, "choose another name") from error


def _is_page(path: Path) -> bool:
    """True for an HTML page, which may be replaced, and for an empty file."""
    try:
        with path.open("rb") as stream:
            start = stream.read(256)
    except OSError as error:
        raise UsageProblem(f"the file cannot be read: {error.strerror}", str(path), "choose another name") from error
    text = start.decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t").lower()
    return not start or text.startswith(_BEGINNING)
