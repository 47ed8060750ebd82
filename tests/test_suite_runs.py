"""Runs of the tests under other conditions are told as they were."""

from __future__ import annotations

from pathlib import Path

from benchmarks.suite_runs import CONDITIONS, next_condition, outcomes, page

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_slow"><skipped message="slow"/></testcase>
<testcase classname="tests.test_b" name="test_bad"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase classname="tests.test_b" name="test_torn"><error message="no fixture"/></testcase>
</testsuite></testsuites>"""


def test_what_failed_is_named_with_its_run(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    found = outcomes(tmp_path / "results.xml")
    assert (found["passed"], found["skipped"]) == (1, 1)
    assert found["failures"] == {"tests.test_b::test_bad": "assert 1 == 2", "tests.test_b::test_torn": "no fixture"}
    run = {
        "condition": "no network",
        "commit": "abc",
        "python": "3.13.0",
        "exit": 1,
        "seconds": 600,
        "processor_seconds": 1200,
        **found,
    }
    told = page([{**run, "failures": {}}, run, {**run, "because": {"tests.test_b::test_bad": "two were one"}}])
    assert "| 1 | no network | 3.13.0 | abc | 1 | 1 | 0 | 10 | 20 |" in told
    assert "- run 2: assert 1 == 2; run 3: two were one: `tests.test_b::test_bad`" in told
    assert told.endswith("- run 2, 3: no fixture: `tests.test_b::test_torn`\n")


def test_the_conditions_take_turns_whatever_each_has_run() -> None:
    names = list(CONDITIONS)
    assert next_condition([]) == names[0]
    assert next_condition([{"condition": names[0]}, {"condition": names[1]}, {"condition": names[1]}]) == names[2]
    assert next_condition([{"condition": names[-1]}]) == names[0]
