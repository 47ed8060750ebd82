"""Formulas of rules as MathML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from trtnorm_cli.report.page.algebra import algebra_of, mathml
from trtnorm_cli.rewrite.rules import RULES

FOLD = """Fold an inference BatchNormalization into the convolution that feeds it.

    W' = W · γ/√(σ²+ε)      b' = β + (b − μ) · γ/√(σ²+ε)

with one factor per output channel, the first axis of W;
a missing b counts as zero.
Source: Ioffe & Szegedy 2015; Jacob et al. 2018, §3.2.
"""


def tree(text: str) -> str:
    """The formula as nested tags with their text."""
    return shown(ElementTree.fromstring(mathml(text))[0])


def shown(element: ElementTree.Element) -> str:
    inner = " ".join(shown(child) for child in element)
    if element.tag == "mrow":
        return inner or str(element.text)
    return f"{element.tag}({inner or element.text})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("γ/√(σ²+ε)", "mfrac(mi(γ) msqrt(msup(mi(σ) mn(2)) mo(+) mi(ε)))"),
        ("(b − μ) · s", "mo(() mi(b) mo(−) mi(μ) mo()) mo(·) mi(s)"),
        ("W'", "msup(mi(W) mo(′))"),
        ("x²_i", "msubsup(mi(x) mi(i) mn(2))"),
        ("sₙ", "msub(mi(s) mi(n))"),
        ("R⁻¹", "msup(mi(R) mn(−1))"),
        ("(a)/(b + c)", "mfrac(mi(a) mi(b) mo(+) mi(c))"),
        ("[N, C/G]", "mo([) mi(N) mo(,) mi(C) mo(/) mi(G) mo(])"),
        ("mean_c(x)", "msub(mi(mean) mi(c)) mo(() mi(x) mo())"),
        ("√(a", "msqrt(mo(() mi(a))"),
        ("a /", "mfrac(mi(a) None)"),
    ],
)
def test_a_formula(text, expected):
    assert tree(text) == expected


def test_the_text_stays_for_readers_without_mathml_and_nothing_of_it_is_markup():
    text = "x < </math><script>alert(1)</script>"
    found = ElementTree.fromstring(mathml(text))
    assert found.get("alttext") == text
    assert {element.tag for element in found.iter()} == {"math", "mrow", "mi", "mo", "mtext", "mn", "mfrac"}


def test_words_keep_their_distance():
    found = ElementTree.fromstring(mathml("μ over all channels of a sample"))
    assert "".join(found.itertext()) == "μ\u00a0over\u00a0all\u00a0channels\u00a0of\u00a0a\u00a0sample"


def test_the_parts_of_a_rule():
    found = algebra_of(FOLD)
    assert found.summary == "Fold an inference BatchNormalization into the convolution that feeds it."
    assert [len(line) for line in found.formulas] == [2]
    assert found.remarks == ("with one factor per output channel, the first axis of W; a missing b counts as zero.",)
    assert found.source == "Ioffe & Szegedy 2015; Jacob et al. 2018, §3.2."


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_formulas_in_which_nothing_is_lost(rule):
    found = algebra_of(rule.doc)
    assert found.summary
    assert found.formulas
    assert found.source
    for formula in [part for line in found.formulas for part in line]:
        math = ElementTree.fromstring(formula)
        letters = [c for c in math.get("alttext") if c.isalpha() and c not in "ᵀⁿₙₚ"]
        assert [c for c in "".join(math.itertext()) if c.isalpha() and c not in "Tnp"] == [c for c in letters if c not in "Tnp"]
