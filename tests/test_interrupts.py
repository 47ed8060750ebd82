"""Interrupts reach the main thread whatever it waits for."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.pipeline.runs import environment
from trtnorm_cli import cli, interrupts


def ended(program: str, *arguments: str) -> tuple[int, str]:
    """The exit code of a Python ``program``, and what it wrote to stderr."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment())
    return done.returncode, done.stderr


# A signal that another thread takes is noted by Python, and ends no wait of the main thread: as one that comes when the main
# thread has just looked for signals, and is about to wait.
NOTED_ONLY = """
import os, signal, sys, threading, time
from trtnorm_cli import cli
name, number = sys.argv[1], getattr(signal, sys.argv[2])
lock, forever = threading.Lock(), threading.Event()

def wait(*arguments, **options):
    threading.Thread(target=send, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    {"event": forever.wait, "lock": lambda: lock.acquire() and lock.acquire(), "sleep": lambda: time.sleep(60)}[name]()

def send():
    time.sleep(0.2)
    os.kill(os.getpid(), number)

cli.cli.main = wait
cli.main([])
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("what", ["event", "lock", "sleep"])
def test_one_that_is_only_noted_ends_what_is_waited_for(what, number):
    assert ended(NOTED_ONLY, what, number) == (130, "interrupted\n")


IGNORED = """
import gc, os, signal, sys, time, weakref
from trtnorm_cli import cli
where, number = sys.argv[1], getattr(signal, sys.argv[2])
if number != signal.SIGINT:  # as of a shell's background job
    signal.signal(signal.SIGINT, signal.SIG_IGN)

class Thing:
    pass

class Ending:
    def __del__(self):
        send()

def send(*_):
    os.kill(os.getpid(), number)
    time.sleep(0)

def ending(*arguments, **options):
    if where == "collection":
        gc.callbacks.append(lambda phase, info: send())
        gc.collect()
        gc.callbacks.clear()
    elif where == "finalizer":
        Ending()
    else:
        weakref.finalize(Thing(), send)
    time.sleep(20)

cli.cli.main = ending
cli.main([])
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("where", ["collection", "finalizer", "weak reference"])
def test_one_that_python_ignores_comes_again(where, number):
    """In a collection, as one of seconds ends: what is called then is the first place at which Python looks for signals."""
    assert ended(IGNORED, where, number) == (130, "interrupted\n")


RACED = """
import os, signal, time
from trtnorm_cli import cli, interrupts

forget = interrupts.Interrupt.forget
def late(self):
    time.sleep(0.3)
    forget(self)
interrupts.Interrupt.forget = late

class Ending:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)

def ending(*arguments, **options):
    Ending()
    time.sleep(20)

cli.cli.main = ending
cli.main([])
"""


def test_one_that_python_ignores_is_forgotten_before_it_comes_again():
    """Or it would be one of two that come close together, and raise nothing."""
    assert ended(RACED) == (130, "interrupted\n")


HELD = """
import os, signal, sys, time
from trtnorm_cli.interrupts import heed_interrupts, interrupts_held
heed_interrupts()
try:
    with interrupts_held() as came:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        print("done", came())
except KeyboardInterrupt:
    print("interrupted")
    time.sleep(0.5)
    print("once")
"""


def test_one_that_is_held_acts_at_the_end_of_the_block_and_once():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=False, env=environment())
    assert done.stdout.splitlines() == ["done True", "interrupted", "once"], done.stderr


class Interrupting:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt


def test_one_that_python_makes_another_error_of_is_no_defect(monkeypatch, capsys):
    """As while a library is imported, whose classes have attributes that want to know their names."""
    monkeypatch.setattr(cli.cli, "main", lambda *arguments, **options: type("Made", (), {"one": Interrupting()}))
    assert cli.run([]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError()])
def test_what_comes_of_an_interrupt(error):
    """Also where causes go round."""
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__context__ = second, error
    assert interrupts.comes_of_interrupt(first) is isinstance(error, KeyboardInterrupt)
    error.__context__ = first
    assert interrupts.comes_of_interrupt(first) is isinstance(error, KeyboardInterrupt)


def test_those_that_come_together_are_one(monkeypatch):
    """The second of two would meet the removal of files in a finalizer, and be printed as an ignored exception."""
    handler, now = interrupts.Interrupt(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    handler(2, None)
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
