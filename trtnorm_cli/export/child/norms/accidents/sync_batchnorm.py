"""SyncBatchNorm, which outside of training computes what BatchNorm computes. Exporters and tools look for BatchNorm."""

from __future__ import annotations

from typing import Any

from torch import nn

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.batchnorm import BatchNorm

# What a module carries besides its class's own state; such a module is left as it is.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


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
