"""Formulas of the rules as MathML, which browsers draw and screen readers read without any help.

The rules write plain text in the manner of UnicodeMath (Sargent, Unicode Technical Note 28): ``γ/√(σ²+ε)`` is a fraction with a
root, ``x_c`` has an index, and words are functions or text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from trtnorm_cli.light_dataclass import dataclass

_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀⁿ", "0123456789−+Tn", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊ₙₚ", "0123456789−+np", strict=True))
_TOKEN = re.compile(rf"[0-9]+(?:\.[0-9]+)?|[^\W\d_{''.join((*_RAISED, *_LOWERED))}]+|\s+|.", re.S)
_PAIRS = {"(": ")", "[": "]", "{": "}", "⌊": "⌋", "⌈": "⌉", "‖": "‖"}
# Formulas that stand beside each other in a line have this much room between them.
_BESIDE = re.compile(r"\s{3,}")
_INDENT = "    "


@dataclass(frozen=True)
class Algebra:
    """The text of a rule: what it does, its formulas as MathML, further paragraphs, and the source."""

    summary: str
    formulas: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]
    source: str


def algebra_of(doc: str) -> Algebra:
    """The parts of the docstring ``doc`` of a rule. Lines that are indented are formulas."""
    paragraphs: list[str] = []
    formulas: list[tuple[str, ...]] = []
    open_paragraph = False
    for line in doc.strip().splitlines():
        if line.startswith(_INDENT):
            formulas.append(tuple(mathml(part) for part in _BESIDE.split(line.strip()) if part))
            open_paragraph = False
        elif not line.strip():
            open_paragraph = False
        elif open_paragraph and not line.startswith("Source:"):
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line.strip())
            open_paragraph = True
    source = next((text.removeprefix("Source:").strip() for text in paragraphs if text.startswith("Source:")), "")
    rest = [text for text in paragraphs if not text.startswith("Source:")]
    return Algebra(rest[0] if rest else "", tuple(formulas), tuple(rest[1:]), source)


def mathml(text: str) -> str:
    """The formula ``text`` as a ``math`` element. Whatever stands in it is escaped."""
    math = Element("math", {"display": "block", "alttext": text})
    math.append(_Reader(text).row())
    return ElementTree.tostring(math, encoding="unicode")


def _element(tag: str, *children: Element, text: str | None = None, **attributes: str) -> Element:
    element = Element(tag, attributes)
    element.text = text
    element.extend(children)
    return element


class _Reader:
    """Reads a formula from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return str(self.tokens[self.at - 1])

    def row(self, until: str = "") -> Element:
        """All up to the bracket ``until``, which is left to read."""
        return _element("mrow", *self._items(until))

    def _items(self, until: str) -> Iterator[Element]:
        while self.peek() and self.peek() != until:
            if self.peek().isspace():
                self.take()
                continue
            item = self.scripted()
            while self._is_fraction(until):
                item = _element("mfrac", _bare(item), _bare(self._denominator()))
            yield item

    def _is_fraction(self, until: str) -> bool:
        """True before a slash. In a shape it stays one."""
        following = self.peek(1) if self.peek().isspace() else self.peek()
        return following == "/" and until != "]"

    def _denominator(self) -> Element:
        while self.take() != "/":
            pass
        if self.peek().isspace():
            self.take()
        return self.scripted() if self.peek() else _element("mrow")

    def scripted(self) -> Element:
        """An atom with what stands below and above it."""
        base, below, above = self.atom(), None, None
        while True:
            token = self.peek()
            if token == "_" and re.match(r"\w", self.peek(1)):
                self.take()
                below = _letters(self.take())
            elif token in _LOWERED:
                below = self._run(_LOWERED)
            elif token in _RAISED:
                above = self._run(_RAISED)
            elif token in ("'", "′"):
                self.take()
                above = _element("mo", text="′", lspace="0", rspace="0")
            else:
                break
        return self._applied(_with_scripts(base, below, above), below)

    def _run(self, digits: dict[str, str]) -> Element:
        found = ""
        while self.peek() in digits:
            found += digits[self.take()]
        return _element("mn" if found[-1].isdigit() else "mi", text=found)

    def _applied(self, name: Element, below: Element | None) -> Element:
        """A function with an index, such as ``mean_c(x)``, with its argument."""
        is_function = below is not None and len(name[0].text or "") > 1 and self.peek() == "("
        return _element("mrow", name, self.atom()) if is_function else name

    def atom(self) -> Element:
        token = self.take()
        if token == "√":
            return _element("msqrt", _bare(self.scripted()))
        if token in _PAIRS:
            closing = _PAIRS[token]
            inner = self.row(closing)
            end = [_element("mo", text=self.take())] if self.peek() == closing else []
            return _element("mrow", _element("mo", text=token), inner, *end)
        if token[0].isdigit():
            return _element("mn", text=token)
        if token[0].isalpha():
            return self._word(token)
        return _element("mo", text="−" if token == "-" else token)

    def _word(self, token: str) -> Element:
        """A variable, a function with its argument, or words between formulas."""
        if not self._is_text(self.at - 1) or self.peek() in ("_", "'", "′"):
            return _letters(token)
        if self.peek() == "(":
            return _element("mrow", _element("mi", text=token, mathvariant="normal"), self.atom())
        before = "\u00a0" if self.at > 1 and self.tokens[self.at - 2].isspace() else ""
        after = "\u00a0" if self.peek().isspace() and not self._is_text(self.at + 1) else ""
        return _element("mtext", text=f"{before}{token}{after}")

    def _is_text(self, at: int) -> bool:
        """True for a word, and for the article ``a`` in front of one."""
        token, space, following = [*self.tokens[at : at + 3], "", "", ""][:3]
        return _is_word(token) or (token == "a" and space.isspace() and _is_word(following))


def _is_word(token: str) -> bool:
    return len(token) > 1 and token.isalpha()


def _letters(token: str) -> Element:
    return _element("mn" if token.isdigit() else "mi", text=token)


def _with_scripts(base: Element, below: Element | None, above: Element | None) -> Element:
    if below is not None and above is not None:
        return _element("msubsup", base, below, above)
    if below is not None:
        return _element("msub", base, below)
    return base if above is None else _element("msup", base, above)


def _bare(item: Element) -> Element:
    """``item`` without round brackets, which a fraction or a root makes needless."""
    if item.tag == "mrow" and len(item) == 3 and item[0].text == "(" and item[2].text == ")":
        return item[1]
    return item
