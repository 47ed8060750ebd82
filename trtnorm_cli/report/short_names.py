"""Long names of nodes shortened in the middle, so that each can still be told from the others."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

_ELLIPSIS = "…"
# So many parts of a path tell a node from its neighbours.
_LAST_PARTS = 3
# Of a name without parts this share stays at its beginning.
_HEAD = 3


def shortened(name: str, width: int) -> str:
    """``name`` in at most ``width`` columns, with … for parts in its middle.

    Beginnings of names are alike in a model, so the last parts are kept first.
    """
    if cell_len(name) <= width:
        return name
    separator = _separator(name)
    # What stands before the first separator of `/model/…` is no part.
    start = separator if name.startswith(separator) else ""
    parts = name.removeprefix(separator).split(separator)
    best, head, tail, grown = "", 0, 0, True
    while grown:
        grown = False
        for more_head, more_tail in ((0, 1), (1, 0)) if tail < _LAST_PARTS else ((1, 0), (0, 1)):
            if head + more_head + tail + more_tail >= len(parts):
                continue
            kept = [*parts[: head + more_head], _ELLIPSIS, *parts[len(parts) - tail - more_tail :]]
            shorter = _joined(kept, separator)
            shorter = start + shorter if head + more_head else shorter
            if tail + more_tail and cell_len(shorter) <= width:
                best, head, tail, grown = shorter, head + more_head, tail + more_tail, True
                break
    return best or _cut(name, width)


def shortened_apart(names: Sequence[str], width: int) -> list[str]:
    """Each name shortened, so that different names stay different. A name stays whole where nothing shorter is different."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(shortened(name, width), []).append(name)
    found: dict[str, str] = {}
    for text, group in alike.items():
        texts = [text] if len(group) == 1 else _told_apart(group, width)
        found.update(zip(group, texts, strict=True))
    return [found[name] for name in names]


def _told_apart(names: Sequence[str], width: int) -> Sequence[str]:
    """The names with the parts from the first one in which they differ, and their last part."""
    separator = _separator(names[0])
    split = [name.split(separator) for name in names]
    columns = enumerate(zip(*split, strict=False))
    first = next((at for at, column in columns if len(set(column)) > 1), min(map(len, split)))
    for kept in range(1, max(map(len, split))):
        ends = [[_ELLIPSIS, *parts[first : first + kept], *_end(parts, first + kept)] for parts in split]
        texts = [_joined(parts, separator) for parts in ends]
        if max(map(cell_len, texts)) > width:
            break
        if len(set(texts)) == len(texts):
            return texts
    return names


def _end(parts: Sequence[str], after: int) -> list[str]:
    """The last part, and … for those between ``after`` and it."""
    left = parts[after:]
    return [*([_ELLIPSIS] if len(left) > 1 else []), *left[-1:]]


def _joined(parts: Sequence[str], separator: str) -> str:
    """The parts as a path; dots beside … would look like more of it."""
    return separator.join(parts).replace(f"{_ELLIPSIS}.", _ELLIPSIS)


def _separator(name: str) -> str:
    return "/" if "/" in name.strip("/") else "."


def _cut(name: str, width: int) -> str:
    """``name`` with … for characters in its middle."""
    kept = max(width - 1, 2)
    head = kept // _HEAD
    return f"{name[:head]}{_ELLIPSIS}{name[len(name) - (kept - head) :]}"
