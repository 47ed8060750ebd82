"""The cores that a container gives, read from files as Linux has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtnorm_cli import cores

SEEN = 64


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(SEEN)), raising=False)
    cores.usable_cores.cache_clear()
    yield
    cores.usable_cores.cache_clear()


def written(folder: Path, groups: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "groups").write_text(groups)
    for name, text in files.items():
        (folder / "limits" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "limits" / name).write_text(text)
    monkeypatch.setattr(cores, "_GROUPS", folder / "groups")
    monkeypatch.setattr(cores, "_LIMITS", folder / "limits")


OLD = "4:memory:/pod\n3:cpu,cpuacct:/pod/one\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="version 2 within a container"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="a part of a core"),
        pytest.param("0::/\n", {"cpu.max": "5000 100000\n"}, 1, id="little of one core"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, SEEN, id="no limit"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3, id="that of one above"),
        pytest.param("0::/../pod\n", {"cpu.max": "400000 100000\n"}, 4, id="a group outside"),
        pytest.param(
            OLD,
            {"cpu,cpuacct/pod/one/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/pod/one/cpu.cfs_period_us": "50000\n"},
            5,
            id="version 1",
        ),
        pytest.param(
            OLD,
            {"cpu,cpuacct/cpu.cfs_quota_us": "600000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            6,
            id="version 1 within a container",
        ),
        pytest.param(
            OLD.replace("cpu,cpuacct", "cpuacct,cpu"),
            {"cpu/pod/one/cpu.cfs_quota_us": "700000\n", "cpu/pod/one/cpu.cfs_period_us": "100000\n"},
            7,
            id="version 1, named otherwise",
        ),
        pytest.param(
            OLD, {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, SEEN, id="-1 is none"
        ),
        pytest.param("0::/\n", {"cpu.max": "9900000 100000\n"}, SEEN, id="more than there are"),
        pytest.param("no line of this form\n", {"cpu.max": "100000 100000\n"}, SEEN, id="unknown"),
    ],
)
def test_cores_within_the_limits_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], expected: int
) -> None:
    written(tmp_path, groups, files, monkeypatch)
    assert cores.usable_cores() == expected


def test_all_cores_where_nothing_is_known_of_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_GROUPS", tmp_path / "none")
    assert cores.usable_cores() == SEEN
