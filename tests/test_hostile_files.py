"""Files made to exhaust, mislead or crash: every command ends with a result or one clear error, within limits.

The cases are those of ``make hostile``. Each runs in a process of its own, which is stopped beyond 60 seconds or 6 GiB.
"""

from __future__ import annotations

import sys

import pytest

from benchmarks.hostile_cases import Case
from benchmarks.hostile_files import all_cases, end_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the watch reads Linux's /proc")
# These take seconds to write or to refuse.
_LARGE = ("10^", "20,000", "2,000", "2.6 GB", "3 GB", "GB", "10 MB", "99 MB", "100 MB", "2^20 parts", "2000 deep", "3000")
# A few of each family, and more of those that once took all of the memory; `SLOW=1` and `make hostile` run all.
_MORE_OF = "constants that unfold"
CASES = list(all_cases())
QUICK = [case for case in CASES if not any(word in case.name for word in _LARGE)]
_ONCE_A_DEFECT = ("branches 32 deep",)
CHOSEN = [
    case
    for place, case in enumerate(QUICK)
    if place % (4 if case.family == _MORE_OF else 12) == 0 or case.name in _ONCE_A_DEFECT
]


def named(case: Case) -> str:
    return f"{case.family}, {case.name}"


def test_the_cases_are_told_apart():
    assert len({named(case) for case in CASES}) == len(CASES) > 300


@pytest.mark.parametrize("case", CHOSEN, ids=named)
def test_a_hostile_file_ends_well(case):
    end = end_of(case, "inspect")
    assert not end.problem, end.said
    assert end.megabytes < 1500


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rewrite", "init", "compare"])
@pytest.mark.parametrize("case", [case for case in CASES if "10^" not in case.name], ids=named)
def test_every_hostile_file_ends_well(case, command):
    end = end_of(case, command)
    assert not end.problem, end.said


def test_an_endless_device_is_no_model(tmp_path, capsys):
    from trtnorm_cli.cli import run

    (tmp_path / "m.onnx").symlink_to("/dev/zero")
    assert run(["inspect", str(tmp_path / "m.onnx")]) == 3
    assert "there is no such file" in capsys.readouterr().err
