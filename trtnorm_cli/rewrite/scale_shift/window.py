"""Where the elements of a convolution's kernel fall on its input."""

from __future__ import annotations

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation


@dataclass(frozen=True)
class Window:
    """The kernel of a Conv along each spatial axis: element k of output p reads the input at p·stride + k·dilation − begin."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def surplus(self) -> tuple[int, ...]:
        """The padding beyond the kernel's extent: with the strides, this fixes the output's size for every input."""
        axes = zip(self.sizes, self.dilations, self.begins, self.ends, strict=True)
        return tuple(begin + end - dilation * (size - 1) for size, dilation, begin, end in axes)

    def places_of(self, other: Window) -> tuple[list[int], ...] | None:
        """For each axis, the elements of this kernel that read what those of ``other`` read; None when it lacks some."""
        if self.strides != other.strides or self.surplus != other.surplus:
            return None
        found = []
        for axis, dilation in enumerate(self.dilations):
            offset = self.begins[axis] - other.begins[axis]
            reads = [k * other.dilations[axis] + offset for k in range(other.sizes[axis])]
            if any(read % dilation or not 0 <= read // dilation < self.sizes[axis] for read in reads):
                return None
            found.append([read // dilation for read in reads])
        return tuple(found)


def window_of(op: Operation, sizes: tuple[int, ...]) -> Window:
    """The window of a Conv with a kernel of ``sizes``.

    Raises ``CannotMove`` when the padding depends on the size of the input, and for a window of another rank than the kernel.
    """
    rank = len(sizes)
    strides = tuple(int(s) for s in op.attr("strides") or (1,) * rank)
    dilations = tuple(int(d) for d in op.attr("dilations") or (1,) * rank)
    if not rank or {len(strides), len(dilations), len(op.attr("pads") or (0,) * 2 * rank) / 2} != {rank}:
        raise CannotMove(f"the window of {op.name} does not fit its kernel {list(sizes)}")
    auto = op.text("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID", ""):
        pads = (0,) * 2 * rank if auto == "VALID" else tuple(int(p) for p in op.attr("pads") or (0,) * 2 * rank)
        return Window(sizes, strides, dilations, pads[:rank], pads[rank:])
    if any(stride != 1 for stride in strides):
        raise CannotMove(f"{op.name} has auto_pad={auto} and strides: its padding depends on the size of the input")
    totals = [dilation * (size - 1) for size, dilation in zip(sizes, dilations, strict=True)]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    upper = auto == "SAME_UPPER"
    return Window(sizes, strides, dilations, small if upper else large, large if upper else small)


def one_element(rank: int) -> Window:
    """The window of an operator that reads and writes each element on its own."""
    return Window((1,) * rank, (1,) * rank, (1,) * rank, (0,) * rank, (0,) * rank)
