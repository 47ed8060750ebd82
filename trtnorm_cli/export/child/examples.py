"""Example inputs, which are tensors of given sizes with values that the model can take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from trtnorm_cli.evaluate.data.drawing import _generator, _values
from trtnorm_cli.export.child.sizes.dimensions import Requested, TensorInput
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import BuildProfile, InputData, Integers


def example_tensors(wanted: Requested, given: Mapping[str, torch.Tensor], profile: BuildProfile) -> dict[str, torch.Tensor]:
    """A tensor for each input at the sizes of the trace. One that came with the model is kept where its shape is right."""
    made, values = {}, InputValues(given, profile.data, seed=0)
    for name, held in wanted.inputs.items():
        shape, example = held.sized(wanted.sizes()), given.get(name)
        dtype = getattr(torch, held.dtype)
        fits = example is not None and tuple(example.shape) == shape and example.dtype == dtype
        made[name] = example if fits and example is not None else values.drawn(held, shape)
    return made


@dataclass(frozen=True)
class InputValues:
    """The source of the values of inputs: ``data`` as the build profile says, or the tensors that were ``given``."""

    given: Mapping[str, torch.Tensor]
    data: Mapping[str, InputData]
    seed: int

    def drawn(self, held: TensorInput, shape: tuple[int, ...]) -> torch.Tensor:
        """Values as the build profile says, else within the range of the given integers, else standard normal or 0 to 3.

        The same seed, name and shape give the same values.
        """
        return to_tensor(self._array(held, shape))

    def _array(self, held: TensorInput, shape: tuple[int, ...]) -> np.ndarray:
        import ml_dtypes

        kind = np.dtype(getattr(ml_dtypes, held.dtype) if held.dtype == "bfloat16" else held.dtype)
        rng, data, example = _generator(self.seed, held.name), self.data.get(held.name), self.given.get(held.name)
        if data is None and example is not None and kind.kind in "iu" and example.numel():
            data = Integers(distribution="integers", low=int(example.min()), below=int(example.max()) + 1)
        if data is not None:
            return np.asarray(_values(data, shape, rng)).astype(kind)
        if kind.kind == "b":
            return rng.integers(0, 2, shape).astype(kind)
        return (rng.integers(0, 4, shape) if kind.kind in "iu" else rng.standard_normal(shape)).astype(kind)


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor of the array's type. NumPy has no bfloat16 of its own."""
    array = np.require(array, requirements=["C", "W"])
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values in its own type."""
    import ml_dtypes

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.resolve_conj().resolve_neg().numpy()


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
