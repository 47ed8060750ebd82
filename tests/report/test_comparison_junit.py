"""Comparisons as JUnit files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.evaluate.metrics import measure
from trtnorm_cli.records.comparison import CandidateRecord, ComparisonRecord, FirstDifference, InnerRecord, OutputVerdict
from trtnorm_cli.report.comparison_junit import junit_text

# Children that JUnit knows, in the order in which its readers want them.
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "properties": ["property"],
    "testcase": ["skipped", "error", "failure", "system-out"],
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "property": {"name", "value"},
    "testcase": {"name", "classname"},
    "skipped": {"message"},
    "error": {"message", "type"},
    "failure": {"message", "type"},
}


def read(text: str) -> ElementTree.Element:
    """The file, once its structure has been checked: names, order, attributes, and counts that are those of the cases."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        known = CHILDREN.get(element.tag, [])
        places = [known.index(child.tag) for child in element]
        assert places == sorted(places), element.tag
        assert set(element.attrib) == ATTRIBUTES.get(element.tag, set()), element.tag
    for counted in (root, *root):
        assert int(counted.attrib["tests"]) == len(counted.findall(".//testcase")) > 0
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(counted.attrib[attribute]) == len(counted.findall(f".//testcase/{tag}")), attribute
    for suite in root:
        named = [(case.attrib["classname"], case.attrib["name"]) for case in suite.iter("testcase")]
        assert len(set(named)) == len(named)
    return root


def verdict(passed: bool | None, reason: str = "", trial: str = "default min") -> OutputVerdict:
    metrics = measure(np.ones(4, np.float32), np.array([1, 1, 1, 2], np.float32))
    return OutputVerdict(trial, "y", metrics, 0.5, 0.25, None, None, None, 3.5, passed, reason)


def candidate(label: str, *outputs: OutputVerdict, **known: object) -> CandidateRecord:
    state = "failed" if any(output.passed is False for output in outputs) else "passed"
    return CandidateRecord(passed=state == "passed", state=state, label=label, kind="onnx", outputs=outputs, notes=(), **known)


def record(*candidates: CandidateRecord, skipped: tuple[str, ...] = ()) -> ComparisonRecord:
    return ComparisonRecord(
        passed=True, state="passed", not_compared=(), seed=0, reference="model.onnx", at=("default min",),
        inputs={"x": "standard normal"}, skipped=skipped, candidates=candidates, float64_evaluated_with={}, notes=(),
        seconds=1.5,
    )  # fmt: skip


def test_each_output_at_each_inputs_is_a_case():
    blame = FirstDifference(
        "t", "bn1", 0.0, 1.0, "a", "b", "the rule x", (), ("first difference: tensor t", "to blame: the rule x")
    )
    root = read(
        junit_text(
            record(
                candidate("rewriting", verdict(True), verdict(True, trial="default max")),
                candidate("network:rewriting", verdict(False, "off by 3.5 times\nthe limit"), blame=blame),
                candidate("other", verdict(None, "nothing finite to compare")),
                skipped=("default opt: not run, it would take about 9 s",),
            )
        )
    )
    assert [root.attrib[key] for key in ("tests", "failures", "errors", "skipped", "time")] == ["5", "1", "0", "2", "1.500"]
    assert [suite.attrib["name"] for suite in root] == [
        "rewriting against model.onnx", "network:rewriting against model.onnx", "other against model.onnx",
        "left out of model.onnx",
    ]  # fmt: skip
    cases = [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")]
    assert cases[:3] == [
        ("rewriting", "y at default min"),
        ("rewriting", "y at default max"),
        ("network:rewriting", "y at default min"),
    ]
    (failure,) = root.iter("failure")
    assert failure.attrib == {"message": "off by 3.5 times the limit", "type": "out of tolerance"}
    assert failure.text == (
        "off by 3.5 times\nthe limit\nworst element [3]: reference 1, candidate 2\n"
        "first difference: tensor t\nto blame: the rule x"
    )
    assert [skipped.attrib["message"] for skipped in root.iter("skipped")] == [
        "no verdict: nothing finite to compare", "not run, it would take about 9 s",
    ]  # fmt: skip
    assert {one.attrib["name"]: one.attrib["value"] for one in root[0].iter("property")} == {
        "reference": "model.onnx", "candidate": "rewriting", "kind": "onnx", "seed": "0", "input x": "standard normal",
    }  # fmt: skip


def test_one_that_does_not_run_is_an_error_and_one_that_cannot_be_had_is_skipped():
    inner = InnerRecord("t", 1, 2, 0.5, 0.1, 5.0)
    root = read(
        junit_text(
            record(candidate("a", error="ended by SIGSEGV"), candidate("b", unavailable="no GPU"), candidate("c", inner=inner))
        )
    )
    outcomes = [[(case.attrib["name"], case[0].tag) for case in suite.iter("testcase")] for suite in root]
    assert outcomes == [[("it runs", "error")], [("it runs", "skipped")], [("inner tensors", "failure")]]


@pytest.mark.parametrize("name", ["a\x00b\x1b[31m", "<&\"'>]]>", "\ud800\uffff", "x" * 9000, "\u202egnp.exe"])
def test_any_name_can_be_read_back(name):
    one = replace(verdict(False, name), output=name)
    root = read(junit_text(replace(record(candidate(name, one)), reference=name)))
    assert len(list(root.iter("failure"))) == 1
    assert "\x1b" not in ElementTree.tostring(root, encoding="unicode")


def test_compare_writes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    graph = (
        "g (float[2, 2, 5, 5] x) => (float[2, 4, 3, 3] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
    )
    weights = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    saved(parse(graph, weights), tmp_path / "model.onnx")
    saved(parse(graph, {**weights, "w": 2 * weights["w"]}), tmp_path / "other.onnx")
    assert run(["compare", "model.onnx", "other.onnx", "model.onnx", "--junit", "out.xml", "--no-blame", "-q"]) == 1
    root = read((tmp_path / "out.xml").read_text(encoding="utf-8"))
    failures = {suite.attrib["name"]: suite.attrib["failures"] for suite in root}
    assert failures["model.onnx against model.onnx"] == "0"
    assert int(failures["other.onnx against model.onnx"]) > 0
    for wrong, said in (("model.onnx", "would overwrite"), ("no/such/out.xml", "there is no such folder")):
        assert run(["compare", "model.onnx", "other.onnx", "--junit", wrong]) == 2
        assert said in capsys.readouterr().err
