"""Node names as users pick them out of a model: by patterns with * and ?."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import nearest

# Names are shown shortened with this, and may be given so.
_LEFT_OUT = "…"
_ANY = "*"
_MOST_STARS = 3
# A pattern with fewer letters tells nothing.
_LEAST_TELLING = 2


@dataclass(frozen=True)
class NodePatterns:
    """Patterns of which a node's name has to fit one. Without a pattern every node fits."""

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def fits(self, *names: str) -> bool:
        """True where one of the names of a node fits one of the patterns."""
        return not self.patterns or any(name in self.patterns or self._regex().match(name) for name in names if name)

    def require(self, names: Iterable[str], place: str) -> None:
        """Raise ``UsageProblem`` for the first pattern that fits none of ``names``, with the nearest one of these."""
        known = list(dict.fromkeys(name for name in names if name))
        for pattern in self.patterns:
            if pattern not in known and not any(map(_regex_of(pattern).match, known)):
                raise UsageProblem(f"no node fits --nodes {pattern}", place, _hint(pattern, known))

    def _regex(self) -> re.Pattern[str]:
        return re.compile("|".join(_regex_of(pattern).pattern for pattern in self.patterns))


def _windows(names: Sequence[str], length: int) -> dict[str, str]:
    """Every run of ``length`` parts of the names, with the first name that has it."""
    found: dict[str, str] = {}
    for name in names:
        parts = _parts(name)
        for start in range(len(parts) - length + 1):
            found.setdefault("/".join(parts[start : start + length]), name)
    return found


def _parts(name: str) -> list[str]:
    return re.split(r"[/.]", name)


EVERY_NODE = NodePatterns()


def _regex_of(pattern: str) -> re.Pattern[str]:
    """The expression for ``pattern``. Brackets are part of names."""
    return re.compile(translate(pattern.replace(_LEFT_OUT, "*").replace("[", "[[]")))


def _hint(pattern: str, names: Sequence[str]) -> str:
    if not names:
        return "it has no nodes with names"
    # What stands between the stars is what the user remembers.
    bare = re.sub(r"[*?…]+", "", pattern)
    near = nearest(bare, names) or next((name for name in names if bare and bare.casefold() in name.casefold()), None)
    if near is None:
        places = _windows(names, len(_parts(bare.strip("/."))))
        part = nearest(bare, places)
        near = None if part is None else places[part]
    meant = f"the nearest is {near}" if near is not None else f"names are such as {names[0]}"
    return f"{meant}; * stands for any characters, as in --nodes '*norm*'"


def common_pattern(names: Sequence[str]) -> str | None:
    """A pattern that all ``names`` fit, with what they share; None where that is nothing to recognise them by.

    Numbers may differ. Among parts that do, only those at the beginning and at the end are kept.
    """
    split = [re.findall(r"\d+|[^\W\d_]+|.", name) for name in dict.fromkeys(names)]
    head = _shared(split)
    if all(len(tokens) == len(head) for tokens in split):
        made = _merged(head)
    else:
        tail = _shared([tokens[len(head) :][::-1] for tokens in split])[::-1]
        made = _merged([*head, _ANY, *(tail if any(map(str.isalpha, tail)) else [])])
    if made.count(_ANY) > _MOST_STARS:
        end = _until_stars(_shared([tokens[::-1] for tokens in split]), 2)[::-1]
        made = _merged([*_until_stars(head, 1), _ANY, *end])
    return made if sum(map(str.isalpha, made)) >= _LEAST_TELLING else None


def _merged(tokens: Iterable[str]) -> str:
    """The tokens as text, neighbouring stars as one, and those at the end too."""
    return re.sub(r"\*([._/]?\*)+$", _ANY, re.sub(r"\*+", _ANY, "".join(tokens)))


def _shared(split: Sequence[Sequence[str]]) -> list[str]:
    """The tokens with which all begin, with a star for numbers that differ."""
    found = []
    for column in zip(*split, strict=False):
        if len(set(column)) == 1:
            found.append(column[0])
        elif all(token.isdecimal() for token in column):
            found.append(_ANY)
        else:
            break
    return found


def _until_stars(tokens: Sequence[str], stars: int) -> list[str]:
    """The tokens before the star of this number."""
    places = [at for at, token in enumerate(tokens) if token == _ANY]
    return list(tokens[: places[stars - 1]] if len(places) >= stars else tokens)
