"""``dataclass`` as in the standard library, made in a fiftieth of the time.

Python's own reads the annotations of a class, makes an object for each field, and writes six methods of a frozen class as text
and compiles them, all when the class is made. That takes about a millisecond a class, and a command imports hundreds, of which
it uses a part. Here the fields and the methods, which are closures, are made when anybody asks for one of them, and
``__init__`` is compiled when the first object is made. The classes are dataclasses to all who ask: ``fields``, ``replace``,
``asdict`` and pydantic take them.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

# A class that has one of these of its own, or that extends a dataclass, is left to the standard library.
_MADE_HERE = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
_OF_ALL, _OF_FROZEN = ("__init__", "__repr__", "__eq__"), ("__hash__", "__setattr__", "__delattr__")
_FIELDS, _PARAMS, _MATCHED = "__dataclass_fields__", "__dataclass_params__", "__match_args__"
_NO_VALUE = object()
_making = threading.RLock()

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, kw_only: bool = False, **others: Any) -> Any:
        """``cls`` as a dataclass; or a decorator with these options. Others than these two are left to the standard library."""
        if cls is None:
            return lambda made: dataclass(made, frozen=frozen, kw_only=kw_only, **others)
        own = cls.__dict__
        if others or any(map(dataclasses.is_dataclass, cls.__mro__)) or any(name in own for name in _MADE_HERE):
            with _making:  # or what it extends is half made
                return dataclasses.dataclass(cls, frozen=frozen, kw_only=kw_only, **others)
        unmade = _Unmade(cls, frozen, kw_only)
        for name in _OF_ALL + _OF_FROZEN if frozen else _OF_ALL:
            setattr(cls, name, _first(unmade, name))
        if not frozen:
            cls.__hash__ = None
        for name in (_FIELDS, _PARAMS, _MATCHED):
            setattr(cls, name, _Late(unmade, name))
        if "__replace__" not in own:
            cls.__replace__ = _replaced
        if any(isinstance(value, Field) for value in own.values()):
            unmade.make()  # or the class would show what stands for a default in place of that
        return cls


class _Unmade:
    """The fields and methods of a class that nobody has asked for yet."""

    def __init__(self, cls: Any, frozen: bool, kw_only: bool) -> None:
        self.cls = cls
        self._frozen, self._kw_only, self._is_made = frozen, kw_only, False

    def make(self) -> None:
        """Make the fields and the methods of the class, unless another thread has."""
        cls = self.cls
        with _making:
            if self._is_made:
                return
            cls.__doc__ = cls.__doc__ or cls.__name__  # or the standard library writes a signature there, which takes long
            dataclasses.dataclass(cls, init=False, repr=False, eq=False, match_args=False, kw_only=self._kw_only)
            setattr(cls, _MATCHED, tuple(one.name for one in fields(cls) if one.init and not one.kw_only))
            told = cls.__dataclass_params__  # what a dataclass that extends this one must agree with
            told.init = told.repr = told.eq = True
            if hasattr(told, "match_args"):  # from Python 3.12 on
                told.match_args = True
            told.frozen = self._frozen
            _give_methods(cls, self._frozen)
            self._is_made = True


def _lock_again() -> None:
    """In a copy of the process, the thread that had the lock is not there."""
    global _making
    _making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock_again)


def _replaced(self: Any, /, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


class _Late:
    """Stands for the attribute ``name`` of a class until anybody asks for it."""

    def __init__(self, unmade: _Unmade, name: str) -> None:
        self._unmade, self._name = unmade, name

    def __get__(self, one: object, kind: type) -> Any:
        self._unmade.make()
        return getattr(self._unmade.cls, self._name)


def _first(unmade: _Unmade, name: str) -> Callable[..., Any]:
    """The method ``name`` of a class until its methods are made: it makes them, and calls the one that takes its place."""

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        unmade.make()
        return getattr(unmade.cls, name)(self, *args, **kwargs)

    return first


def _give_methods(cls: Any, frozen: bool) -> None:
    known = fields(cls)
    shown = tuple(one.name for one in known if one.repr)
    compared = _values([one.name for one in known if one.compare])

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        made = cls.__init__ = _compiled_init(cls, known, frozen)
        made(self, *args, **kwargs)

    @recursive_repr()
    def shown_as(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def equals(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    cls.__init__, cls.__repr__, cls.__eq__ = first_init, shown_as, equals
    if frozen:
        _freeze(cls, known)


def _freeze(cls: Any, known: Iterable[Field[Any]]) -> None:
    names = frozenset(one.name for one in known)
    hashed = _values([one.name for one in known if (one.compare if one.hash is None else one.hash)])

    def refuse_setting(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_deleting(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__, cls.__hash__ = refuse_setting, refuse_deleting, lambda self: hash(hashed(self))


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the attributes ``names`` of an object."""
    if len(names) == 1:
        get = attrgetter(*names)
        return lambda one: (get(one),)
    return attrgetter(*names) if names else lambda one: ()


def _compiled_init(cls: Any, known: Iterable[Field[Any]], frozen: bool) -> Callable[..., None]:
    """``__init__`` as the standard library writes it."""
    values: dict[str, Any] = {"_set": object.__setattr__, "_no_value": _NO_VALUE}
    taken: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for one in known:
        value = name = one.name
        if one.default_factory is not MISSING:
            values[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}() if {name} is _no_value else {name}" if one.init else f"_make_{name}()"
        if one.default is not MISSING:
            values[f"_default_{name}"] = one.default
        if one.init:
            otherwise = "_no_value" if one.default_factory is not MISSING else f"_default_{name}"
            is_needed = one.default is MISSING and one.default_factory is MISSING
            taken[one.kw_only is True].append(name if is_needed else f"{name}={otherwise}")
        elif one.default_factory is MISSING:
            continue
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *taken[False], *(["*", *taken[True]] if taken[True] else [])])
    made: dict[str, Callable[..., None]] = {}
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(lines or ["pass"]), values, made)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return made["__init__"]
