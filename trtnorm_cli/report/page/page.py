"""The page: views of the manifest put into templates, which escape every name."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from trtnorm_cli.report.page import words
from trtnorm_cli.report.page.again import Again
from trtnorm_cli.report.page.coverage import Coverage
from trtnorm_cli.report.page.drawing import Drawings
from trtnorm_cli.report.page.errors import Errors
from trtnorm_cli.report.page.islands import Types
from trtnorm_cli.report.page.kernels import KernelTable
from trtnorm_cli.report.page.remarks import remarks_of
from trtnorm_cli.report.page.rewrites import Rewrites
from trtnorm_cli.report.page.sizes import Sizes, rule_of
from trtnorm_cli.report.page.steps import steps_of
from trtnorm_cli.report.page.summary import Summary
from trtnorm_cli.tensorrt.manifest import Manifest

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# The sections by their id, with what the list of contents calls them.
CONTENTS = {
    "summary": "Summary",
    "steps": "What was done",
    "rewrites": "Changes",
    "kernels": "Where time will go",
    "norms": "Normalizations",
    "sizes": "Sizes",
    "errors": "Differences",
    "types": "Types",
    "remarks": "Warnings",
    "again": "Make it again",
}
_TEMPLATES = "templates"


def page_of(manifest: Manifest) -> str:
    """The report as HTML: one file with its style, its script and its pictures, which asks for nothing else."""
    from markupsafe import Markup

    drawings = Drawings()
    remarks = remarks_of(manifest)
    script = template_file("page.js")
    text = environment().get_template("page.html.j2").render(
        manifest=manifest,
        contents=CONTENTS.items(),
        style=Markup(template_file("page.css")),
        script=Markup(script),
        script_hash=_digest(script),
        summary=Summary.of(manifest, sum(remark.is_warning for remark in remarks)),
        steps=steps_of(manifest),
        rewrites=Rewrites.of(manifest, drawings),
        outlines=drawings.outlines.values(),
        kernels=KernelTable.of(manifest),
        coverage=Coverage.of(manifest),
        sizes=Sizes.of(manifest),
        errors=Errors.of(manifest),
        types=Types.of(manifest),
        remarks=remarks,
        again=Again.of(manifest),
    )  # fmt: skip
    return words.fit(text)


def environment() -> Environment:
    """The templates, with the filters that they use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    found = Environment(
        loader=PackageLoader("trtnorm_cli.report.page", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": words.number, "bytes": words.size, "counted": _counted, "legal": rule_of, "drawn": Markup}
    found.filters["breakable"] = _breakable
    return found


def _breakable(name: str) -> Markup:
    """The name of a node, which may be broken where a part of it begins, and nowhere else."""
    from markupsafe import Markup, escape

    return escape(name[:1]) + escape(name[1:]).replace("/", Markup("<wbr>/"))


def _counted(count: int, singular: str) -> str:
    return words.counted(count, singular)


def template_file(name: str) -> str:
    """A file that lies beside the templates."""
    return resources.files("trtnorm_cli.report.page").joinpath(f"{_TEMPLATES}/{name}").read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """The script as the page's security policy names it: no other one may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
