"""The store: results seen whole or not at all, the first kept, in a folder and behind a URL; and claims on work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from trtnorm_cli.batch import claims
from trtnorm_cli.batch.claims import KillsWorkers, claimed
from trtnorm_cli.batch.store import Store, StoredFile
from trtnorm_cli.errors import ModelError, UsageProblem

pytest.importorskip("fsspec")


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4().hex}/store")
    made.open()
    return made


def test_a_file_comes_back_as_it_went(store, tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(b"abc" * 1000)
    stored = store.put_file(file, "a.bin")
    assert store.put_file(file, "again.bin").sha256 == stored.sha256
    store.get_file(stored, tmp_path / "deep" / "b.bin")
    assert (tmp_path / "deep" / "b.bin").read_bytes() == file.read_bytes()
    with pytest.raises(ModelError, match=r"the store has lost lost\.bin"):
        store.get_file(StoredFile("lost.bin", "0" * 64, 3), tmp_path / "c.bin")


def test_bytes_that_changed_in_the_store_are_not_handed_out(tmp_path):
    store = Store(str(tmp_path / "store"))
    store.open()
    (tmp_path / "a").write_bytes(b"right")
    stored = store.put_file(tmp_path / "a", "a")
    next((tmp_path / "store" / "objects").rglob(stored.sha256)).write_bytes(b"wrong")
    with pytest.raises(ModelError, match="are not those that were put there"):
        store.get_file(stored, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_of_many_results_the_first_is_kept(store):
    found: list[dict[str, object]] = []
    start = threading.Barrier(8)

    def put(number: int) -> None:
        start.wait()
        found.append(store.put_result("build", "a" * 64, {"by": number}))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = store.result("build", "a" * 64)
    if store.folder is not None:  # in memory fsspec looks and then writes, and its users are threads of one process
        assert all(one == kept for one in found)
    assert kept in found
    assert store.results("build", ["a" * 64, "b" * 64]) == {"a" * 64: kept}
    assert store.results("export", ["a" * 64]) == {}


def test_only_one_claim_is_made_anew(store):
    assert store.put_claim("x", {"token": "1"}, anew=True)
    assert not store.put_claim("x", {"token": "2"}, anew=True)
    store.drop_claim("x")
    store.drop_claim("x")
    assert store.put_claim("x", {"token": "3"}, anew=True)


def test_a_store_of_another_format_is_refused(tmp_path):
    (tmp_path / "store.json").write_text('{"format": 99}')
    with pytest.raises(UsageProblem, match="format 99"):
        Store(str(tmp_path)).open()


@pytest.mark.parametrize(("url", "words"), [("nonsense://x", "cannot be used"), ("/proc/none/store", "cannot be written")])
def test_a_store_that_cannot_be_used_is_named(url, words):
    with pytest.raises(UsageProblem, match=words) as error:
        Store(url).open()
    assert error.value.where is not None
    assert "none/store" in error.value.where or "nonsense" in error.value.where


def nothing() -> None:
    """Nobody is told."""


def claim(store: Store, run: str, is_done: bool = False) -> claims.Claimed | None:
    with claimed(store, "job", run, lambda: is_done, nothing, nothing) as mine:
        return mine


def test_a_claim_is_gone_after_the_work_and_after_an_error(store):
    def fail() -> None:
        with claimed(store, "job", "run", lambda: False, nothing, nothing) as mine:
            assert mine is not None
            assert store.claim("job")["attempt"] == 1
            raise ValueError("the work fails")

    with pytest.raises(ValueError, match="the work fails"):
        fail()
    assert store.claim("job") is None


def test_the_claim_of_a_process_that_is_gone_is_taken_over_at_once(tmp_path):
    store = Store(str(tmp_path / "store"))
    store.open()
    code = (
        "import os, sys\nfrom trtnorm_cli.batch.store import Store\nfrom trtnorm_cli.batch.claims import claimed\n"
        "with claimed(Store(sys.argv[1]), 'job', 'other run', lambda: False, lambda: None, lambda: None):\n    os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, store.url], check=False, env=os.environ, timeout=60)
    assert store.claim("job") is not None
    mine = claim(store, "run")
    assert mine is not None
    assert mine.attempt == 1


def test_what_another_run_works_on_is_waited_for(store):
    waits: list[str] = []
    with claimed(store, "job", "first run", lambda: False, nothing, nothing):
        with claimed(store, "job", "second run", lambda: True, lambda: waits.append("waits"), nothing) as mine:
            assert mine is None
        assert store.claim("job") is not None
    assert waits == ["waits"]


def test_a_claim_whose_beat_stands_still_is_taken_over(store, monkeypatch):
    monkeypatch.setattr(claims, "_STALE_S", 0.2)
    store.put_claim("job", {"token": "t", "run": "elsewhere", "host": "another machine", "beat": 3}, anew=True)
    assert claim(store, "run") is not None


def test_a_job_that_ends_its_workers_is_given_up_after_three(store):
    store.put_claim("job", {"token": "t", "run": "run", "attempt": 2, "host": "lost"}, anew=True)
    mine = claim(store, "run")
    assert mine is not None
    assert mine.attempt == 3
    store.put_claim("job", {"token": "t", "run": "run", "attempt": 3, "host": "lost"}, anew=True)
    with pytest.raises(KillsWorkers, match="3 workers were lost"):
        claim(store, "run")
    assert store.claim("job") is None
