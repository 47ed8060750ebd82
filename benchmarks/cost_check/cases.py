"""The cases of the check: patterns, the forms of each, shapes, types and layouts. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

COUNTS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 100_000)
LENGTHS = (64, 256, 1024, 4096, 16384, 65536, 262_144, 1_048_576, 2160 * 3840)
SMALLEST, LARGEST = 2**15, 2**28
HELD, LONG = 32768, 16384
IMAGES = (
    (1, 64, 56, 56), (8, 256, 56, 56), (8, 64, 112, 112), (32, 512, 14, 14), (16, 1024, 7, 7), (4, 512, 64, 64),
    (1, 320, 128, 128), (2, 128, 256, 256), (1, 32, 512, 512), (1, 64, 1080, 1920), (1, 16, 2160, 3840), (2, 8, 1024, 1024),
)  # fmt: skip
GROUPS = 8
IMAGE_FORMS = {
    "instance_norm": ("torch", "compiled", "passes", "decomposed"),
    "group_norm": ("torch", "compiled", "passes", "decomposed"),
    "channel_norm": ("torch", "compiled", "passes", "decomposed"),
    "batch_norm": ("torch", "compiled", "decomposed"),
    "scale_shift_relu": ("compiled", "decomposed"),
    "plane_mean": ("torch", "compiled"),
}
BYTES = {"float32": 4, "float16": 2}


@dataclass(frozen=True)
class Case:
    """One thing to time. ``shape`` is (rows, length), or (N, C, H, W) where ``layout`` is nchw or nhwc."""

    pattern: str
    form: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = "rows"

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.dtype]

    @property
    def same_work(self) -> tuple[Any, ...]:
        """The key that all forms of the same work share."""
        return (self.pattern, self.shape, self.dtype, self.layout)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def cases() -> list[Case]:
    """Every case, in an order that keeps the forms of the same work together."""
    return [*_row_cases(), *_image_cases()]


def _row_cases() -> Iterator[Case]:
    shapes = [(n, k) for n in COUNTS for k in LENGTHS if SMALLEST <= n * k <= LARGEST]
    for index, shape in enumerate(shapes):
        held = ("triton_held",) if shape[1] <= HELD else ()
        for form in ("copy", "torch", "compiled", "passes", "decomposed", "triton4", "triton32", *held):
            yield Case("layer_norm", form, shape, "float32")
        for dtype in ("float32", "float16") if shape[1] >= LONG else ():
            yield Case("layer_norm", "triton_two", shape, dtype)
        for form in ("torch", "compiled", "decomposed") if index % 2 == 0 else ():
            yield Case("rms_norm", form, shape, "float32")
        for form in ("copy", "torch", "compiled", "triton4", "decomposed") if index % 2 == 1 else ():
            yield Case("layer_norm", form, shape, "float16")


def _image_cases() -> Iterator[Case]:
    for index, shape in enumerate(IMAGES):
        for dtype in ("float32", "float16") if index % 4 == 1 else ("float32",):
            for layout in ("nchw", "nhwc"):
                for pattern, forms in IMAGE_FORMS.items():
                    for form in forms:
                        yield Case(pattern, form, shape, dtype, layout)
                for form in ("copy", "torch", "triton"):
                    yield Case("transpose", form, shape, dtype, layout)
