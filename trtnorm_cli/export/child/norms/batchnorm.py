"""A BatchNorm for tensors of any rank, which PyTorch has only among its private classes."""

from __future__ import annotations

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm


class BatchNorm(_BatchNorm):
    """BatchNorm over axis 1 of tensors of any rank from 2, as SyncBatchNorm takes them."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")
