"""Einsums whose equation has capital letters are given small ones, as TensorRT takes no others.

TensorRT for RTX 1.7 says that there are invalid characters in the equation, as in those of torchvision's MaxViT. ONNX allows
both cases, and which letter stands for an axis says nothing (Einsum in the ONNX operator specification). Only without ``->`` do
the axes of the result have the order of their letters; ONNX Runtime runs no such equation with capital letters, and it stays.
"""

from __future__ import annotations

import string
from collections import Counter

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node


def give_einsums_small_letters(model: ir.Model, counts: Counter[str]) -> None:
    """Rename the subscripts of Einsums with capital letters, where all have one meaning and there are letters enough."""
    for node in every_node(model.graph):
        if node.op_type == "Einsum" and node.domain == "" and (equation := node.attributes.get("equation")) is not None:
            before = equation.as_string()
            after = _in_small_letters(before)
            if after != before:
                node.attributes["equation"] = ir.AttrString("equation", after)
                counts["Einsums given small letters"] += 1


def _in_small_letters(equation: str) -> str:
    used = [letter for letter in string.ascii_letters if letter in equation]
    capitals = [letter for letter in used if letter.isupper()]
    free = [letter for letter in string.ascii_lowercase if letter not in used]
    if "->" not in equation or len(capitals) > len(free):
        return equation
    # The same letter where it is free, which is easier to read.
    names = {letter: letter.lower() for letter in capitals if letter.lower() in free}
    rest = iter(letter for letter in free if letter not in names.values())
    table = {ord(letter): names.get(letter) or next(rest) for letter in capitals}
    return equation.translate(table)
