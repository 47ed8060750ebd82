"""Demands of operators on the values of a tensor."""

from __future__ import annotations

from dataclasses import replace

from trtnorm_cli.evaluate.data.value_sets import EVERYTHING, Values
from trtnorm_cli.light_dataclass import dataclass

# Added to scores before a softmax, this leaves nothing of an element.
_LOW = -900.0


@dataclass(frozen=True)
class Demand:
    """``legal`` are the values that break nothing, ``preferred`` those among them that mean something.

    ``components`` are one set for each position along the last axis, where these differ. ``roles`` say what the tensor is for:
    ``index``, ``length``, ``mask``, ``flag``, ``distinct``, ``domain``, ``pixels``, ``position``. ``constants`` are numbers
    that it is compared with. Where that makes a mask, ``shown`` are the values that it does not hide. ``penalty`` is (k, d)
    where k·value + d is added to scores. Where that is very low, a value of the mask hides an element.
    """

    legal: Values = EVERYTHING
    preferred: Values = EVERYTHING
    reasons: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()
    constants: frozenset[int | float] = frozenset()
    penalty: tuple[float, float] | None = None
    shown: Values = EVERYTHING
    components: tuple[Values, ...] | None = None

    @property
    def hides(self) -> int | None:
        """The one of 0 and 1 that is made a very low number, where the other is not."""
        if self.penalty is None:
            return None
        at_zero, at_one = self.penalty[1], sum(self.penalty)
        return (0 if at_zero < at_one else 1) if min(at_zero, at_one) <= _LOW < max(at_zero, at_one) else None

    def whole_rows(self) -> Demand:
        """The same demand without a difference between positions, where every element must fit each."""
        if self.components is None:
            return self
        legal = self.legal
        for component in self.components:
            legal = legal.intersect(component)
        return replace(self, legal=legal, components=None)


NOTHING = Demand()


def index_of(size: int | None, name: str, *, distinct: bool = False) -> Demand:
    """An index into an axis of ``size``, negative ones counted from its end."""
    roles = frozenset({"index", "distinct"} if distinct else {"index"})
    if size is None:
        return Demand(preferred=Values(((0, 3),)), reasons=(f"index of {name}, whose size is not known",), roles=roles)
    legal = Values(((-size, size - 1),) if size else ())
    return Demand(legal, Values(((0, size - 1),) if size else ()), (f"index of {name}",), roles)


def merged(a: Demand, b: Demand) -> Demand:
    """Both at once. Where the preferences exclude each other, the first counts."""
    if a is NOTHING or b is NOTHING:
        return b if a is NOTHING else a
    components = a.components
    if a.components is None or b.components is None or len(a.components) != len(b.components):
        a, b = (a.whole_rows(), b.whole_rows()) if a.components and b.components else (a, b)
        components = a.components or b.components
    else:
        components = tuple(x.intersect(y) for x, y in zip(a.components, b.components, strict=True))
    legal = a.legal.intersect(b.legal)
    both = a.preferred.intersect(b.preferred)
    first = b if "index" in b.roles and "index" not in a.roles else a
    return Demand(
        legal,
        first.preferred if legal.intersect(both).empty else both,
        tuple(dict.fromkeys((*first.reasons, *(b if first is a else a).reasons)))[:4],
        a.roles | b.roles,
        a.constants | b.constants,
        a.penalty or b.penalty,
        a.shown if a.shown.intersect(b.shown).empty else a.shown.intersect(b.shown),
        components,
    )
