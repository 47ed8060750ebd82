"""Architectures of libraries nobody here wrote, small and with random weights, each with the build profile it is exported with.

A SPEC names them as ``library_models.py:NAME``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

IMAGE = "dims: {N: {min: 1, opt: 2, max: 4}, H: {min: 50, opt: 64, max: 96}, W: {min: 50, opt: 64, max: 96}}"
BATCH = "dims: {N: {min: 1, opt: 2, max: 4}}"
TOKENS = "dims: {N: {min: 1, opt: 2, max: 4}, T: {min: 3, opt: 12, max: 32}}"


def randomised(module: nn.Module) -> nn.Module:
    """Statistics and affine parameters of normalizations as after training: none is 0 or 1 everywhere."""
    torch.manual_seed(0)
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.running_mean is not None:
            child.running_mean.normal_(0, 0.2)
            child.running_var.uniform_(0.5, 1.5)
            child.num_batches_tracked.fill_(1)
        if "Norm" in type(child).__name__:
            for name, parameter in child.named_parameters(recurse=False):
                parameter.data.uniform_(0.5, 1.2) if name == "weight" else parameter.data.normal_(0, 0.2)
    return module.eval()


def from_timm(name: str, size: int = 64, **options: Any) -> tuple[nn.Module, torch.Tensor]:
    import timm

    torch.manual_seed(0)
    return randomised(timm.create_model(name, pretrained=False, **options)), torch.randn(2, 3, size, size)


def from_torchvision(name: str, shape: tuple[int, ...] = (2, 3, 64, 64), **options: Any) -> tuple[nn.Module, torch.Tensor]:
    import torchvision

    torch.manual_seed(0)
    made = torchvision.models.get_model(name, weights=None, **options)
    return randomised(made), torch.randn(*shape)


def from_transformers(model: str, configuration: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, configuration)(**options)
    made = randomised(getattr(transformers, model)(config))
    if "image_size" in options or model.startswith(("Segformer", "ConvNext")):
        size = options.get("image_size", 64)
        return made, {"pixel_values": torch.randn(2, 3, size, size)}
    ids = torch.randint(0, options["vocab_size"], (2, 12))
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return made, inputs if model.startswith(("Bert", "Distil", "T5")) else {**inputs, "use_cache": False}


SMALL = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}

ARCHITECTURES: dict[str, tuple[Callable[[], Any], str]] = {
    **{
        f"timm_{name}": (partial(from_timm, name), IMAGE)
        for name in (
            "resnet18", "mobilenetv3_small_050", "efficientnet_b0", "densenet121", "convnext_atto", "regnety_002", "repvgg_a0",
            "ghostnet_050", "resnetv2_50", "dla34", "hrnet_w18_small", "poolformer_s12", "edgenext_xx_small", "mobilevit_xxs",
        )
    },
    "timm_vit_tiny": (partial(from_timm, "vit_tiny_patch16_224", img_size=64), BATCH),
    "timm_swin_tiny": (
        partial(from_timm, "swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(1, 1, 1, 1)), BATCH
    ),
    "timm_mixer": (partial(from_timm, "mixer_s32_224", img_size=64), BATCH),
    "timm_levit": (partial(from_timm, "levit_128s", size=224), BATCH),
    "timm_xcit": (partial(from_timm, "xcit_nano_12_p16_224"), IMAGE),
    "torchvision_deeplab": (
        partial(from_torchvision, "deeplabv3_mobilenet_v3_large", weights_backbone=None), IMAGE
    ),
    "torchvision_r3d": (
        partial(from_torchvision, "r3d_18", shape=(1, 3, 4, 32, 32)), "dims: {N: {min: 1, opt: 2, max: 3}}"
    ),
    "transformers_bert": (partial(from_transformers, "BertModel", "BertConfig", **SMALL), TOKENS),
    "transformers_distilbert": (
        partial(
            from_transformers, "DistilBertModel", "DistilBertConfig", vocab_size=101, dim=32, n_layers=2, n_heads=4,
            hidden_dim=64,
        ),
        TOKENS,
    ),
    "transformers_t5_encoder": (
        partial(
            from_transformers, "T5EncoderModel", "T5Config", vocab_size=101, d_model=32, d_kv=8, d_ff=64, num_layers=2,
            num_heads=4,
        ),
        TOKENS,
    ),
    "transformers_llama": (partial(from_transformers, "LlamaModel", "LlamaConfig", **SMALL), TOKENS),
    "transformers_qwen2": (
        partial(from_transformers, "Qwen2Model", "Qwen2Config", **SMALL, num_key_value_heads=2), TOKENS
    ),
    "transformers_gpt2": (
        partial(from_transformers, "GPT2Model", "GPT2Config", vocab_size=101, n_embd=32, n_layer=2, n_head=4), TOKENS
    ),
    "transformers_vit": (
        partial(
            from_transformers, "ViTModel", "ViTConfig", image_size=32, patch_size=8,
            **{key: value for key, value in SMALL.items() if key != "vocab_size"},
        ),
        BATCH,
    ),
    "transformers_segformer": (
        partial(
            from_transformers, "SegformerModel", "SegformerConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 3, 4],
        ),
        IMAGE,
    ),
}  # fmt: skip


def __getattr__(name: str) -> Callable[[], Any]:
    if name not in ARCHITECTURES:
        raise AttributeError(name)
    return ARCHITECTURES[name][0]
