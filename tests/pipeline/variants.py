"""Stand-ins for what a build works on: rewritings that are told apart, and the making of an engine of one."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import onnx

from trtnorm_cli.engine_making import Making
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Variant

CLOCK = SimpleNamespace(time=lambda what: nullcontext())
OPTIONAL = SimpleNamespace(optional=True, rule="a rule", in_passing=False)
NEEDED = SimpleNamespace(optional=False, rule="a repair", in_passing=False)


def rewriting(*changes: Any, **more: Any) -> Any:
    model = SimpleNamespace(graph=SimpleNamespace(initializer=[]))
    return SimpleNamespace(changes=list(changes), failed=[], model=model, folder=None, **more)


USUAL, EVERY, NEVER = rewriting(NEEDED), rewriting(NEEDED, OPTIONAL), rewriting(NEEDED)


def rewritten(policy: str = "", left_out: frozenset[str] = frozenset(), measured: bool = False, foreseen: Any = None) -> Any:
    return NEVER if policy == "never" else EVERY if measured else USUAL


NO_NODES = onnx.ModelProto()
SESSION = SimpleNamespace(rewrite=rewritten, model=NO_NODES)


def made(variant: Variant, result: Any, lowering: Any = None) -> Any:
    nothing: Any = None
    return Making(variant, lowering, (), Later(lambda: result), Later(lambda: result), nothing, nothing, nothing, nothing)
