"""Freed memory that stays: a page that is used again is not cleared again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trtnorm_cli.child_process import child_environment
from trtnorm_cli.heap import heap_environment

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the GNU C library")

# The pages that arrays of some MiB take anew, one after the other, once there was one.
FAULTS = """
import os, resource, sys
from trtnorm_cli.heap import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory({}):
    sys.exit(3)
import numpy as np
def array():
    np.ones(int(sys.argv[2]) << 17)
array()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    array()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, environment: dict[str, str], mebibytes: int = 8) -> int:
    command = [sys.executable, "-c", FAULTS, how, str(mebibytes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_arrays_take_the_pages_of_those_before():
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert faults("kept", plain) < 200
    assert faults("by its environment", {**plain, **heap_environment(plain)}) < 200
    assert faults("kept", plain, mebibytes=100) < 200, "however large they are"


def test_children_keep_what_was_freed_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    environment = child_environment()
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "7"
    assert int(environment["MALLOC_MMAP_THRESHOLD_"]) == 32 << 20


def test_what_is_free_can_be_given_back():
    code = """
import os
from trtnorm_cli.heap import give_back_freed_memory, keep_freed_memory
keep_freed_memory({})
import numpy as np
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
before = resident()
np.ones(25 << 20)
kept = resident() - before
give_back_freed_memory()
print(kept, resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    kept, left = map(int, done.stdout.split())
    if kept < 100:
        pytest.skip("this C library keeps nothing")
    assert left < 50


COLLECTIONS = """
import gc, sys, weakref
from trtnorm_cli.heap import put_off_collections
class Ring:
    def __init__(self):
        self.own = self
put_off_collections()
earlier, told = len(gc.callbacks), []
dead, alive = weakref.ref(Ring()), Ring()
held = [[number] for number in range(150_000)]
print(dead() is not None, len(gc.callbacks), gc.get_freeze_count())
held += [[number] for number in range(100_000)]
late = weakref.ref(Ring())
held += [[number] for number in range(25_000)]
print(dead() is None, late() is None, len(gc.callbacks), gc.get_freeze_count() > 200_000, gc.get_threshold()[0])
"""


def test_garbage_is_looked_for_late_and_not_among_what_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIONS], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True 1 0", "True True 0 True 20000"]
