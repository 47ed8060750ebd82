"""What TensorRT's messages mean, as data: one entry for each family of messages.

The texts were read from TensorRT for RTX 1.7; TensorRT 10 and 11 use the same parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NO_DRIVER = re.compile(r"cudaError 35|CUDA initialization failure with error: 35")


@dataclass(frozen=True)
class Entry:
    """A family of messages: a regular expression that finds them, what they mean, and what to do."""

    pattern: str
    meaning: str
    advice: str


def is_missing_driver_noise(message: str) -> bool:
    """True for what TensorRT adds to any error on a machine without a driver."""
    return _NO_DRIVER.search(message) is not None


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        r"does(n't| not) support training_mode == 1",
        "the BatchNormalization is in training mode: it normalizes with the statistics of the batch",
        "export the model after model.eval()",
    ),
    Entry(
        r"support mode than 1 outputs for (\w+) nodes",
        "the node has more than one output; TensorRT computes the first one only",
        "export the model in inference mode, or remove the further outputs where nobody uses them",
    ),
    Entry(
        r"Inputs to BatchNormalization must have the same shape",
        "scale, bias, mean and variance of the BatchNormalization differ in length",
        "the file is damaged or was edited: compare the four lengths with `trtnorm inspect`, and export again",
    ),
    Entry(
        r"(weights has count|invalid `\w+` weights|kCHANNEL with \d+ weights)",
        "the parameters of the normalization have another length than its input has channels (or the rank of the input is "
        "not known)",
        "compare channels and parameter lengths with `trtnorm inspect`; the batch or channel axis was moved or lost on the "
        "way, or the weights belong to another layer",
    ),
    Entry(
        r"shape of the scale input must be \(C, \)",
        "the parameters of the BatchNormalization are not vectors",
        "reshape scale, bias, mean and variance to one axis of length C",
    ),
    Entry(
        r"scale is expected to match the output at the channel dimension",
        "scale and bias of the normalization have another length than its input has channels",
        "compare channels and parameter lengths with `trtnorm inspect`",
    ),
    Entry(
        r"within given the first two dimensions must be > 1",
        "a normalization has a single element to normalize over, for example after a global pooling",
        "the result does not depend on the data: it is the bias; replace the node by its bias",
    ),
    Entry(
        r"(must be either all FLOAT or all FLOAT16|must have identical types|must have same input types|must be of same type)",
        "an operator gets tensors of different floating types; the network is strongly typed",
        "cast one side in the model, so that data and parameters have one type",
    ),
    Entry(
        r"should be at least 3D",
        "GroupNormalization and InstanceNormalization need a batch, a channel and at least one further axis",
        "add an axis of length 1 before the normalization and remove it after",
    ),
    Entry(
        r"must resolve to a build-time constant",
        "axes, shapes or weights are computed at run time where TensorRT needs constants",
        "export with static values here; `trtnorm rewrite` has folded what could be folded",
    ),
    Entry(
        r"Plugin not found",
        "TensorRT knows no operator and no plugin of this name",
        "check the operator's name and domain; decompose it into standard ONNX operators when exporting",
    ),
    Entry(
        r"Size mismatch when importing initializer",
        "a weight holds fewer or more bytes than its dimensions need (the numbers in the message are swapped)",
        "the file is damaged: export it again",
    ),
    Entry(
        r"(Failed to import initializer|convertOnnxWeights|Found unsupported datatype|Failed to open file)",
        "a weight could not be read: its external file is missing, has another size, or its type is not supported",
        "check that the data file lies beside the model, and that no weight is int16, uint64 or a string",
    ),
    Entry(
        r"Failed to sort the model topologically",
        "the graph has a cycle, or two nodes write one tensor",
        "check the file with onnx.checker and export it again",
    ),
    Entry(
        r"Failed to convert ONNX dimensions to TensorRT dimensions",
        "a tensor has more than eight axes",
        "reshape the tensor so that it has at most eight",
    ),
    Entry(
        r"(no optimization profile has been defined|Invalid optimization profiles for input)",
        "the network has dynamic inputs, and no valid optimization profile",
        "give min <= opt <= max for each dynamic input in the build profile",
    ),
    Entry(
        r"is missing dimensions in profile",
        "a dynamic input has no shapes in an optimization profile",
        "name the input in the build profile as the model names it",
    ),
    Entry(
        r"(Dimensions with name|Input dimensions with this name|must be equal)",
        "dimensions with one symbolic name must be equal in all inputs, and here they are not",
        "give them the same values in the build profile, or different names in the model",
    ),
    Entry(
        r"(violate shape constraints|not self-consistent|broadcast dimensions must be conformable)",
        "the shapes of the optimization profile do not fit together inside the network",
        "choose other min, opt or max sizes; sizes are often multiples of the network's total stride",
    ),
    Entry(
        r"HW-specific datatypes: b16",
        "bfloat16 does not exist on one of the compute capabilities asked for",
        "use float16 or float32, or leave out compute capabilities below 8.0",
    ),
    Entry(
        r"imports IPluginV3",
        "the plugin is of a generation that this TensorRT does not take",
        "use a plugin of the IPluginV3 generation, or standard ONNX operators",
    ),
    Entry(
        r"Only L1 and L2 normalization are supported",
        "LpNormalization has another p than 1 or 2",
        "write it with ReduceSum, Abs and Pow when exporting",
    ),
    Entry(
        r"Trying to access weights or a null tensor",
        "a graph output is not produced by any node",
        "check the file with onnx.checker and export it again",
    ),
    Entry(
        r"CUDA initialization failure",
        "this backend needs an NVIDIA GPU and driver, also to build",
        "build on a machine with a GPU, or with the backend tensorrt-rtx, which needs none: pip install 'trtnorm[rtx]'",
    ),
    Entry(
        r"has no layers and no outputs",
        "the parser accepted the file without reading a model from it; a single file over 2 GiB does that",
        "save the weights as external data",
    ),
)
