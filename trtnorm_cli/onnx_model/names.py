"""Names that a model does not use yet."""

from __future__ import annotations


def free_name(wanted: str, taken: set[str], numbers: dict[str, int] | None = None) -> str:
    """``wanted``, or ``wanted_2`` … when that is ``taken``; it is taken from now on.

    ``numbers`` remembers the last number of each name, for a caller that asks for the same one very often.
    """
    name, number = wanted, (numbers or {}).get(wanted, 1)
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    if numbers is not None:
        numbers[wanted] = number
    return name
