"""Take a BatchNormalization off the batch that was folded into its channels.

    reshape(BN(reshape(x, [1, N·C, …]), γ tiled N times, …), [N, C, …]) = BN(x, γ, …)

Exporters write an instance normalization with running statistics so: every sample gets channels of its own, and the parameters
are repeated for each. In evaluation mode the statistics are the same for all samples, so nothing of it is needed.
Source: torch.nn.functional.instance_norm with use_input_stats=False; Ioffe & Szegedy 2015.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.parts.data_channels import channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.shape_elements import AxisSize, Element, shape_elements
from trtnorm_cli.rewrite.pattern import Const, Var, describe, either, fed_by, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_TILED = tuple(
    either(op("Tile", Const(p.name), Var(f"{p.name}_repeats"), name=f"tile_{p.name}"), p) for p in batchnorm.PARAMETERS
)
_COPY = 0


def channels_are_known(m: Match) -> str | None:
    """the number of channels of the data is known."""
    return None if channel_count(m) is not None else f"the number of channels of {m.given('x').name} is not known"


def the_batch_is_folded_into_channels(m: Match) -> str | None:
    """before the BatchNormalization the batch is moved into the channels, and the other axes stay as they are."""
    shape, elements = m.shape("x") or (), shape_elements(m, m.given("folded_shape"))
    if elements is None or len(elements) != len(shape) or len(shape) < 2:
        return f"{describe(m.node('fold'))} does not keep the rank of {m.given('x').name}"
    copies = m.node("fold").attrs.get("allowzero", 0) == 0
    if elements[0] == 1 and all(_is_size(m, elements[axis], axis, copies) for axis in range(2, len(shape))):
        return None
    return f"{describe(m.node('fold'))} does not move the batch of {m.given('x').name} into its channels"


def the_batch_is_unfolded_again(m: Match) -> str | None:
    """after the BatchNormalization the shape of the data is restored."""
    shape, elements = m.shape("x") or (), shape_elements(m, m.given("unfolded_shape"))
    if elements is not None and len(elements) == len(shape):
        copies = m.root.attrs.get("allowzero", 0) == 0
        kept = all(_is_size(m, elements[axis], axis, copies) for axis in range(2, len(shape)))
        # The number of elements stays, so that one of the first two axes follows from the other.
        if kept and (_is_size(m, elements[1], 1, False) or (elements[1] == -1 and _is_size(m, elements[0], 0, False))):
            return None
    return f"{describe(m.root)} does not restore the shape of {m.given('x').name}"


def _is_size(m: Match, element: Element, axis: int, zero_copies: bool) -> bool:
    if zero_copies and element == _COPY and axis > 1:
        return True
    size = (m.shape("x") or ())[axis]
    wanted = size if isinstance(size, int) else AxisSize(m.given("x").name, axis)
    return element == wanted


def parameters_are_tiled(m: Match) -> str | None:
    """scale, bias, mean and variance hold one value per channel, or the same values again for each sample."""
    channels = channel_count(m)
    assert channels is not None, "channels_are_known holds"
    for name in batchnorm.PARAMETER_NAMES:
        value = m.value(name)
        pieces = 1 if f"tile_{name}" in m.bindings.nodes else value.size // channels
        if value.ndim != 1 or value.size != channels * pieces or not _repeats(value.tobytes(), pieces):
            return f"{m.given(name).name} is not one vector of {channels} values, repeated"
    return None


def _repeats(content: bytes, pieces: int) -> bool:
    """True when ``content`` is one piece again and again, bit for bit."""
    return pieces > 0 and content == content[: len(content) // pieces] * pieces


def on_the_data(m: Match) -> NewNode:
    channels, node = channel_count(m), m.node(batchnorm.BATCHNORM)
    parameters = (NewConstant(name, m.value(name)[:channels]) for name in batchnorm.PARAMETER_NAMES)
    return NewNode("BatchNormalization", (m.given("x"), *parameters), dict(node.attrs), name=node.name, role="per_channel")


RULE = Rule(
    name="untile-batchnorm",
    pattern=op(
        "Reshape",
        op(
            "BatchNormalization",
            op("Reshape", Var("x"), Var("folded_shape"), name="fold"),
            *_TILED,
            name=batchnorm.BATCHNORM,
        ),
        Var("unfolded_shape"),
        name="unfold",
    ),
    preconditions=(
        batchnorm.is_inference,
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        channels_are_known,
        the_batch_is_folded_into_channels,
        the_batch_is_unfolded_again,
        parameters_are_tiled,
    ),
    replacement=on_the_data,
    concerns=fed_by("BatchNormalization"),
    optional=batchnorm.has_float32_data,
    because="every sample is normalized with the same statistics, so the batch need not be folded into the channels",
)
