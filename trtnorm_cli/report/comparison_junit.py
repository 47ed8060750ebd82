"""A comparison as a JUnit file: a test suite for each candidate, a test case for each output at each set of inputs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.files import cannot_write, require_free, write_in_one_step
from trtnorm_cli.records.comparison import CandidateRecord, ComparisonRecord, OutputVerdict
from trtnorm_cli.report.xml_text import line, plain


def require_junit_possible(file: Path, sources: list[Path]) -> None:
    """Raise ``UsageProblem`` where no file can be written to ``file``, which must not be one of ``sources``."""
    require_free([file], sources)
    if not file.absolute().parent.is_dir():
        raise UsageProblem("there is no such folder", str(file.parent), "create it, or choose another one")


def write_junit(comparison: ComparisonRecord, file: Path) -> None:
    """Write the comparison to ``file``."""
    try:
        write_in_one_step(junit_text(comparison), file)
    except OSError as error:
        raise cannot_write("the JUnit file", file, error, "choose another name") from error


def junit_text(comparison: ComparisonRecord) -> str:
    """The comparison as JUnit's XML. Inputs that were left out are skipped cases of a suite of their own."""
    suites = Element("testsuites", name="trtnorm compare")
    for candidate in comparison.candidates:
        _add_candidate(suites, candidate, comparison)
    if comparison.skipped:
        _add_left_out(suites, comparison)
    for suite in suites:
        _count(suite, suite)
    _count(suites, suites)
    suites.set("time", f"{comparison.seconds:.3f}")
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _add_candidate(suites: Element, candidate: CandidateRecord, comparison: ComparisonRecord) -> None:
    suite = SubElement(suites, "testsuite", name=plain(f"{candidate.label} against {comparison.reference}"))
    properties = SubElement(suite, "properties")
    known = {"reference": comparison.reference, "candidate": candidate.label, "kind": candidate.kind, "seed": comparison.seed}
    inputs = {f"input {name}": drawn for name, drawn in comparison.inputs.items()}
    for name, value in {**known, **inputs}.items():
        if value is not None:
            SubElement(properties, "property", name=plain(name), value=plain(str(value)))
    if candidate.error is not None:
        case = _case(suite, candidate, "it runs")
        SubElement(case, "error", message=line(candidate.error), type="does not run").text = plain(candidate.error)
    if candidate.unavailable is not None:
        SubElement(_case(suite, candidate, "it runs"), "skipped", message=line(candidate.unavailable))
    blame = [] if candidate.blame is None else list(candidate.blame.text)
    for verdict in candidate.outputs:
        _add_verdict(_case(suite, candidate, f"{verdict.output} at {verdict.trial}"), verdict, blame)
    inner = candidate.inner
    if inner is not None and inner.share > 1:
        said = (
            f"tensor {inner.tensor}, index {inner.index} of axis {inner.axis}: off by {inner.distance:.1e}, "
            f"{inner.allowed:.1e} is explained by rounding"
        )
        case = _case(suite, candidate, "inner tensors")
        SubElement(case, "failure", message=line(said), type="out of tolerance").text = plain("\n".join([said, *blame]))


def _case(suite: Element, candidate: CandidateRecord, name: str) -> Element:
    return SubElement(suite, "testcase", name=plain(name), classname=plain(candidate.label))


def _add_verdict(case: Element, verdict: OutputVerdict, blame: list[str]) -> None:
    """Say what came of one output, with its errors in either case."""
    if verdict.passed is None:
        SubElement(case, "skipped", message=line(f"no verdict: {verdict.reason}"))
    elif not verdict.passed:
        worst = verdict.native
        element = (
            f"worst element {list(worst.worst)}: reference {worst.worst_reference:.9g}, candidate {worst.worst_candidate:.9g}"
        )
        failure = SubElement(case, "failure", message=line(verdict.reason), type="out of tolerance")
        failure.text = plain("\n".join([verdict.reason, element, *blame]))
    SubElement(case, "system-out").text = plain(_errors(verdict))


def _errors(verdict: OutputVerdict) -> str:
    native = verdict.native
    lines = [
        f"max abs {native.max_abs:.3g}, mean abs {native.mean_abs:.3g}, relative L2 {native.relative_l2:.3g}, "
        f"cosine {native.cosine:.9f}"
    ]
    if verdict.exact is not None:
        lines.append(f"relative L2 in float64: {verdict.exact:.3g}")
    if verdict.share is not None:
        lines.append(f"of limit: {verdict.share:.0%}")
    return "\n".join(lines)


def _add_left_out(suites: Element, comparison: ComparisonRecord) -> None:
    suite = SubElement(suites, "testsuite", name=plain(f"left out of {comparison.reference}"))
    for text in comparison.skipped:
        label, _, reason = text.partition(": ")
        case = SubElement(suite, "testcase", name=plain(label), classname=plain(comparison.reference))
        SubElement(case, "skipped", message=line(reason or text))


def _count(counted: Element, within: Element) -> None:
    """Write how many cases there are ``within`` an element, and how they ended."""
    counted.set("tests", str(len(within.findall(".//testcase"))))
    for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counted.set(attribute, str(len(within.findall(f".//testcase/{outcome}"))))
