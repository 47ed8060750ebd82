"""SyncBatchNorm: outside of training it computes what BatchNorm computes, but exporters and tools look for BatchNorm."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trtnorm_cli.export.accidents.accident import Accident

# What a module carries besides its class's own state; such a module is left as it is.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class BatchNorm(_BatchNorm):
    """BatchNorm over axis 1 of tensors of any rank from 2, as SyncBatchNorm takes them."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")


def convert_sync_batchnorm(model: nn.Module) -> tuple[nn.Module, list[Accident]]:
    """Replace each ``torch.nn.SyncBatchNorm`` by a BatchNorm that shares its parameters and statistics."""
    converted: dict[nn.Module, nn.Module] = {}
    accidents = []
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) is not nn.SyncBatchNorm or any(getattr(module, hooks) for hooks in _HOOKS):
            continue
        if module not in converted:
            converted[module] = _batchnorm(module)
            accidents.append(Accident("sync-batchnorm", path, "SyncBatchNorm converted to BatchNorm, with its values", "fixed"))
        if not path:
            return converted[module], accidents
        parent, _, name = path.rpartition(".")
        model.get_submodule(parent)._modules[name] = converted[module]
    return model, accidents


def _batchnorm(sync: Any) -> BatchNorm:
    made = BatchNorm(sync.num_features, sync.eps, sync.momentum, affine=False, track_running_stats=False)
    made.affine, made.track_running_stats = sync.affine, sync.track_running_stats
    made._parameters.update(sync._parameters)
    made._buffers.update(sync._buffers)
    made.training = sync.training
    return made
