"""Images of 0 to 255 in the place of random ones about 0: what a network may be fed that does not scale them itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtnorm_cli.precision.output_errors import Arrays

_BRIGHTEST = 255.0
# Batch, channels and at least two axes: fewer are features or sequences, which nobody feeds as bytes.
_FEWEST_AXES = 4


def wider_inputs(feeds: Sequence[Arrays]) -> list[Arrays]:
    """The random ``feeds`` with images spread over 0 … 255; nothing where no image has negative values.

    Data without negative values were drawn for an input that takes none, and say themselves how large they are.
    """
    images = [{name for name, value in feed.items() if _is_image(value)} for feed in feeds]
    return [
        {name: _spread(value) if name in names else value for name, value in feed.items()}
        for feed, names in zip(feeds, images, strict=True)
        if names
    ]


def _is_image(value: np.ndarray) -> bool:
    if value.dtype != np.float32 or value.ndim < _FEWEST_AXES or not value.size:
        return False
    lowest, largest = float(value.min()), float(value.max())
    return lowest < 0 < largest < _BRIGHTEST


def _spread(value: np.ndarray) -> np.ndarray:
    """The image with its values in their order, evenly between 0 and 255.

    Stretched alone, normal noise would keep half of the contrast that images have, and overflow half as soon.
    """
    ranks = np.empty(value.size, np.float32)
    ranks[np.argsort(value, axis=None)] = np.linspace(0.0, _BRIGHTEST, value.size, dtype=np.float32)
    return ranks.reshape(value.shape)
