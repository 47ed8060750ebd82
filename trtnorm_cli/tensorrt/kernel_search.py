"""Search for the rewriting whose engine launches the fewest kernels, and say what a rewriting did to their number."""

from __future__ import annotations

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.rewrite.kernels import Cost, Known, fewest_kernels, is_put_to_choice
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.tensorrt.manifest import Choice, Kernels
from trtnorm_cli.tensorrt.request import BuildResult
from trtnorm_cli.tensorrt.variants import VariantBuilder, cost_of

# A search that nobody asked for is kept short: two of its builds were made before, to see whether there is a cause.
_MOST_UNASKED_BUILDS = 4
# TensorRT for RTX times no kernel. It takes about 20 ms of one core for a launch, and 6 for a megabyte.
QUICK_BACKEND = "tensorrt-rtx"


@dataclass(frozen=True)
class Bounds:
    """The largest engine that is built a second time without the changes."""

    launches: int
    engine_bytes: int


# An engine should not keep what costs launches for want of some seconds; what is only told may cost half of one.
TO_DECIDE, TO_TELL = Bounds(600, 1 << 30), Bounds(24, 4 << 20)
# The nodes of a model that go into one launch, seldom more.
_NODES_IN_A_LAUNCH = 8


@dataclass(frozen=True)
class Variant:
    """A rewriting, and how a search for the fewest kernels came to it where there was one."""

    rewriting: Rewriting
    choice: Choice | None = None


def searched(session: Rewriter, variants: VariantBuilder, known: Known | None = None) -> Variant:
    """The rewriting whose engine launches the fewest kernels, found by building.

    With ``optimize: auto`` each rule makes all of its changes or none: what costs launches is mostly a kind of place.
    """

    def measure(rewriting: Rewriting) -> Cost:
        return cost_of(variants.build(rewriting))

    if session.settings.optimize == "auto":
        found = fewest_kernels(session, measure, _MOST_UNASKED_BUILDS, is_put_to_choice, by_halves=False, known=known)
    else:
        found = fewest_kernels(session, measure)
    choice = Choice(found.every_change, found.no_change, found.best, found.left_out, found.builds)
    return Variant(found.rewriting, choice)


def known_costs(result: BuildResult, before: Kernels) -> Known:
    """The costs of every change and of none, as the builds of the engine and of the unchanged model found them."""
    return Known(Cost(len(launched(result.kernels)), result.engine_bytes), cost_of(before))


def is_quick(result: BuildResult, bounds: Bounds) -> bool:
    """True for a build that is worth repeating to see what changes did.

    No clock tells, because what it tells would depend on what else the machine does, and the engine on that.
    """
    small = len(launched(result.kernels)) <= bounds.launches and result.engine_bytes <= bounds.engine_bytes
    return result.backend == QUICK_BACKEND and small


def may_be_quick(model: onnx.ModelProto, bounds: Bounds) -> bool:
    """False for a model of which ``is_quick`` will hardly say yes: a second build is not prepared before that is known."""
    return len(model.graph.node) <= _NODES_IN_A_LAUNCH * bounds.launches


def is_worse(result: BuildResult, before: Kernels | None) -> bool:
    """True when the engine launches more kernels than one without the changes that only improve the model."""
    if before is None or before.reason:
        return False
    return len(launched(result.kernels)) > before.launches
