"""The dataclasses of this package beside those of the standard library: they are the same to all who use them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest
from pydantic import TypeAdapter

from trtnorm_cli.light_dataclass import dataclass

FORMS = """
@dataclass(frozen=True)
class Point:
    "A point."
    x: int
    name: str = "p"
    more: dict = field(default_factory=dict, compare=False)
    hidden: float = field(default=0.5, repr=False, kw_only=True)
    kind: ClassVar[str] = "all"

@dataclass(frozen=True)
class One:
    x: int

@dataclass(frozen=True, kw_only=True)
class Named:
    x: int
    y: int = 2

@dataclass
class Nothing:
    pass

@dataclass
class Changed:
    x: int
    late: list = field(init=False, default_factory=list)
    def __post_init__(self):
        self.x += 1

@dataclass(eq=False)
class ByIdentity:
    x: int

@dataclass(frozen=True)
class Own:
    x: int
    def __eq__(self, other):
        return True
    __hash__ = None

@dataclass(frozen=True)
class Extended(Point):
    y: int = 3
"""


def made_with(decorator: Any) -> dict[str, Any]:
    names = {"dataclass": decorator, "field": field, "ClassVar": ClassVar, "__name__": __name__}
    exec(FORMS, names)
    return names


OURS, THEIRS = made_with(dataclass), made_with(dataclasses.dataclass)
OBJECTS = (
    "Point(1)",
    "Point(1, 'q', {2: 3}, hidden=1.5)",
    "Point(x=1, more={4: 5})",
    "One(7)",
    "Named(x=1)",
    "Nothing()",
    "Changed(1)",
    "Own(1)",
    "Extended(1, 'q', {}, 4)",
)


def told(names: dict[str, Any], call: str) -> dict[str, Any]:
    """What can be said of the object that ``call`` makes."""
    one, again = eval(call, names), eval(call, names)
    kind = type(one)
    return {
        "repr": repr(one),
        "equal": (one == again, one != again, one == 1, one == names["One"](8)),
        "hash": hash(one) if kind.__hash__ is not None else None,
        "fields": [(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in fields(one)],
        "dict": asdict(one),
        "match": kind.__match_args__,
        "copies": [repr(copy.copy(one)), repr(copy.deepcopy(one)), copy.copy(one) == one],
        "is": is_dataclass(one),
        "read": repr(TypeAdapter(kind).validate_python({f.name: getattr(one, f.name) for f in fields(one) if f.init})),
    }


@pytest.mark.parametrize("call", OBJECTS)
def test_an_object_is_as_the_standard_library_makes_it(call):
    assert told(OURS, call) == told(THEIRS, call)


@pytest.mark.parametrize("names", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_frozen_object_stays(names):
    for one in (names["Point"](1), names["Extended"](1)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            one.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del one.x
        with pytest.raises(FrozenInstanceError):
            one.unknown = 2
        assert replace(one, x=5).x == 5
        assert one.x == 1

    class Plain(names["One"]):
        pass

    plain = Plain(1)
    plain.more = 2
    with pytest.raises(FrozenInstanceError):
        plain.x = 2
    assert plain == Plain(1) != names["One"](1)


@pytest.mark.parametrize(
    "call", ["Point()", "Point(1, 2, 3, 4)", "Point(1, y=2)", "Changed(1, late=[])", "Nothing(1)", "Named(1)"]
)
def test_wrong_arguments_are_refused_in_the_same_words(call):
    said = []
    for names in (OURS, THEIRS, OURS):  # the first call of a class, and a later one
        with pytest.raises(TypeError) as error:
            eval(call, names)
        said.append(str(error.value))
    assert len(set(said)) == 1


@dataclass(frozen=True)
class Sent:
    x: int
    more: tuple[str, ...] = ()


def test_an_object_can_be_sent():
    assert pickle.loads(pickle.dumps(Sent(1, ("a",)))) == Sent(1, ("a",))


def test_the_standard_library_can_extend_a_class():
    extended = dataclasses.dataclass(frozen=True)(type("Extended", (Sent,), {"__annotations__": {"z": int}, "z": 1}))
    assert repr(extended(1, z=2)).endswith("Extended(x=1, more=(), z=2)")
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Thawed", (Sent,), {}))


def test_fields_are_made_once_when_they_are_asked_for():
    """By whoever asks, also several at once: the standard library takes what stands for a default away as it reads it."""
    for asks in (
        fields,
        is_dataclass,
        lambda kind: kind(1) == kind(2),
        lambda kind: kind.__dataclass_params__.frozen,
        TypeAdapter,
    ):
        kinds = [made_with(dataclass)["One"] for _ in range(50)]
        assert not any(isinstance(vars(kind)["__dataclass_fields__"], dict) for kind in kinds)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(asks, [kind for kind in kinds for _ in range(8)]))
        assert all([one.name for one in vars(kind)["__dataclass_fields__"].values()] == ["x"] for kind in kinds)


def test_what_is_read_from_a_class_or_an_object_that_was_never_asked():
    for decorator in (dataclass, dataclasses.dataclass):
        kinds = made_with(decorator)
        assert kinds["Named"].__match_args__ == ()
        assert kinds["Point"].__match_args__ == ("x", "name", "more")
        unmade = object.__new__(kinds["One"])
        object.__setattr__(unmade, "x", 3)
        assert repr(unmade) == "One(x=3)"
    assert OURS["One"](1).__replace__(x=2) == OURS["One"](2)


def test_a_copy_of_the_process_can_make_fields():
    code = (
        "import os, sys, threading\nfrom trtnorm_cli import light_dataclass\n"
        "@light_dataclass.dataclass(frozen=True)\nclass A:\n    x: int\n"
        "held = threading.Event()\n"
        "def hold():\n    with light_dataclass._making:\n        held.set()\n        threading.Event().wait(20)\n"
        "threading.Thread(target=hold, daemon=True).start()\nheld.wait()\n"
        "if not os.fork():\n    os._exit(A(1).x)\n"
        "os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, timeout=15).returncode == 1


def test_nothing_is_compiled_for_a_class_that_is_only_made():
    code = (
        "import builtins, dataclasses\nfrom trtnorm_cli.light_dataclass import dataclass\n"
        "compiled, real = [], builtins.exec\n"
        # Python 3.13 compiles a function without methods in it for every class.
        "def exec_(text, *names):\n    compiled.extend([text] * ('self' in str(text)))\n    return real(text, *names)\n"
        "builtins.exec = exec_\n"
        "@dataclass(frozen=True)\nclass A:\n    x: int\n    y: int = 2\n"
        "assert compiled == [], compiled\nassert A(1) == A(1) and hash(A(1)) and repr(A(1))\nassert len(compiled) == 1\n"
        "@dataclasses.dataclass(frozen=True)\nclass B:\n    x: int\n"
        "assert len(compiled) > 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
