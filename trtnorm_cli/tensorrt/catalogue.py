"""The meaning of TensorRT's messages, as data, with one entry for each family of messages.

The texts were read from TensorRT for RTX 1.4 and 1.7. TensorRT 10 and 11 use the same parser.
"""

from __future__ import annotations

import re

from trtnorm_cli.light_dataclass import dataclass

_NO_DRIVER = re.compile(r"cudaError 35|checkMacros\.cpp::catchCudaError|CUDA initialization failure with error: 35")

# All that the parser says of operators that it only refuses.
ONLY_A_NAME = r"(?m)^(Assertion failed: )?false\b"

# What to run next. {model} is the user's model, {profile} the option that names the build profile.
INSPECT = "trtnorm inspect {model}"
EXPLAIN = "trtnorm rewrite {model}{profile} --explain --dry-run"
INIT = "trtnorm init {model} -o start.yaml"
ISOLATE = "trtnorm build {model}{profile} --isolate"
DOCTOR = "trtnorm doctor"


@dataclass(frozen=True)
class Entry:
    """A family of messages, with a regular expression that finds them, what they mean, what to do, and the command to run next.

    ``operators`` is a regular expression for the operators that the family is about. It is empty where it is about any. A
    family that is ``general`` says less than any other, so its advice is only given where there is no other.
    """

    pattern: str
    meaning: str
    advice: str
    command: str = INSPECT
    operators: str = ""
    general: bool = False

    def fits(self, text: str, operator: str) -> bool:
        """True when TensorRT's ``text`` belongs to the family. Where it names no operator, the text alone decides."""
        about = not self.operators or not operator or re.fullmatch(self.operators, operator) is not None
        return about and re.search(self.pattern, text) is not None


def is_missing_driver_noise(message: str) -> bool:
    """True for what TensorRT adds to any error on a machine without a driver."""
    return _NO_DRIVER.search(message) is not None


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        r"does(n't| not) support training_mode == 1",
        "the BatchNormalization is in training mode: it normalizes with the statistics of the batch",
        "export the model after model.eval()",
        EXPLAIN,
    ),
    Entry(
        r"support mode than 1 outputs for (\w+) nodes",
        "the node has more than one output; TensorRT computes the first one only",
        "export the model in inference mode, or remove the further outputs where nobody uses them",
        EXPLAIN,
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
        EXPLAIN,
    ),
    Entry(
        r"(must be either all FLOAT or all FLOAT16|must have identical types|must have same input types|must be of same type)",
        "an operator gets tensors of different floating types; the network is strongly typed",
        "cast one side in the model, so that data and parameters have one type",
        EXPLAIN,
    ),
    Entry(
        r"should be at least 3D",
        "GroupNormalization and InstanceNormalization need a batch, a channel and at least one further axis",
        "add an axis of length 1 before the normalization and remove it after",
        ISOLATE,
        r"(Instance|Group)Normalization",
    ),
    Entry(
        r"must resolve to a build-time constant|must be an initializer",
        "axes, shapes or weights are computed at run time where TensorRT needs constants",
        "export with static values here; `trtnorm rewrite` has folded what could be folded",
        EXPLAIN,
    ),
    Entry(
        r"Plugin not found|Op type \S+ is not supported",
        "TensorRT knows no operator and no plugin of this name",
        "check the operator's name and domain; decompose it into standard ONNX operators when exporting, or name the library "
        "that has a plugin for it under plugins: in the build profile",
    ),
    Entry(
        r"was not found in (the )?plugin registry",
        "TensorRT makes a plugin of this operator, and the installation has none; TensorRT for RTX ships no plugins",
        "build with a TensorRT that ships it, or name its library under plugins: in the build profile; a NonZero comes of "
        "indexing with a mask, x[mask] = v, which torch.where(mask, v, x) does without one",
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
        INIT,
    ),
    Entry(
        r"missing values for shape input",
        "the elements of an integer input decide sizes in the model, and the optimization profile gives none",
        "give min, opt and max of its elements under `values:` in the build profile",
    ),
    Entry(
        r"is missing dimensions in profile",
        "a dynamic input has no shapes in an optimization profile",
        "name the input in the build profile as the model names it",
        INIT,
    ),
    Entry(
        r"Dimensions with name .* must be equal|[Ii]nput dimensions with this name",
        "dimensions with one symbolic name must be equal in all inputs, and here they are not",
        "give them the same values in the build profile, or different names in the model",
        INIT,
    ),
    Entry(
        r"ISqueezeLayer without an axes input",
        "a Squeeze says no axes, and the optimization profile allows a size of 1 on a further axis: the rank would change",
        "write the axes of the Squeeze down when exporting, or give that axis a min of at least 2 in the build profile",
        INSPECT,
    ),
    Entry(
        r"violate shape constraints|not self-consistent|broadcast dimensions must be conformable",
        "the shapes of the optimization profile do not fit together inside the network",
        "choose other min, opt or max sizes; sizes are often multiples of the network's total stride",
        INIT,
        general=True,
    ),
    Entry(
        r"because the model contains HW-specific datatypes",
        "the model uses a type that does not exist on one of the compute capabilities asked for: bfloat16 (b16) needs 8.0, "
        "float8 needs 8.9",
        "use float16 or float32, or leave out older compute capabilities under builder.targets",
    ),
    Entry(
        r"imports IPluginV3",
        "the plugin is of a generation that this TensorRT does not take",
        "use a plugin of the IPluginV3 generation, or standard ONNX operators",
        DOCTOR,
    ),
    Entry(
        r"Only L1 and L2 normalization are supported",
        "LpNormalization has another p than 1 or 2",
        "write it with ReduceSum, Abs and Pow when exporting",
        ISOLATE,
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
        DOCTOR,
    ),
    Entry(
        r"has no layers and no outputs",
        "the parser accepted the file without reading a model from it; a single file over 2 GiB does that",
        "save the weights as external data",
    ),
    Entry(
        r"invalid reduction dimension \d+ specified in reduceAxes",
        "an operator reduces over an axis that its input does not have; MeanVarianceNormalization of rank 3 does so by default",
        "write the axes down when exporting",
        EXPLAIN,
    ),
    Entry(
        r"Only float inputs/outputs supported in LpNormalization",
        "LpNormalization takes float32 and float16 only",
        "cast its input to float32 and its output back",
        EXPLAIN,
    ),
    Entry(
        r"kLRN_(MIN|MAX)_(WINDOW|K|BETA)",
        "LRN is outside of what TensorRT takes: an odd size up to 15, a bias of at least 1e-5, a beta of at least 0.01",
        "write it with Mul, Conv, Pow and Div when exporting",
        EXPLAIN,
    ),
    Entry(
        r"at least 4 dimensions are required for input",
        "LRN needs a batch, a channel and two further axes",
        "add an axis of length 1 before it and remove it after",
        EXPLAIN,
        "LRN",
    ),
    Entry(
        r"Node input was not registered",
        "a node reads a tensor that nothing produces, or whose producer failed before it; in the body of a Loop, the number of "
        "iterations or the condition that the Loop is not given",
        "give a Loop both, as a trip count and true; else check the file with onnx.checker and export it again; where another "
        "message stands above, mend that one first",
    ),
    Entry(
        r"node\.input\(\)\.size\(\) == function\.input\(\)\.size\(\)|Node has more output tensors than TRT expected",
        "a node that calls a model-local function leaves out an input or an output, which TensorRT's parser does not take",
        "inline the functions: onnx.inliner.inline_local_functions does",
        EXPLAIN,
    ),
    Entry(
        r"Relative paths to parent",
        "the external data of a weight lies outside of the model's folder",
        "place the data beside the model and save it again with a relative location",
    ),
    Entry(
        r"Unexpected size for the external weights",
        "the external data file is shorter or longer than the weight needs",
        "copy the data file again: a model with external data is two files",
    ),
    Entry(
        r"Key value of: \w+ was not expected",
        "the entry of an external weight has a key other than location, offset, length and checksum",
        "save the model again with onnx.save_model(…, save_as_external_data=True)",
    ),
    Entry(
        r"Failed to convert ONNX date type",
        "an input, output or value has an element type that TensorRT does not have, such as int16, string or complex",
        "cast it in the model to a type that TensorRT has: float32, float16, bfloat16, int64, int32, int8 or bool",
    ),
    Entry(
        r"has type \w+ but must have type",
        "the operator does not take this element type",
        "cast its input before and its output after, or use another type when exporting",
        ISOLATE,
    ),
    Entry(
        ONLY_A_NAME,
        "TensorRT's parser knows the operator by name only: it has no tensors that are lists of tensors",
        "export with lists that are taken apart: torch.split, chunk and unbind with sizes that are constants",
        ISOLATE,
        r"Sequence\w+|\w*(To|From|At)?Sequence\w*|Optional\w*",
    ),
    Entry(
        ONLY_A_NAME,
        "TensorRT's parser knows the operator by name only: it has no quantised operators but QuantizeLinear and "
        "DequantizeLinear",
        "build from the float model, or quantise that statically into QuantizeLinear and DequantizeLinear nodes with symmetric "
        "int8",
        ISOLATE,
        r"Dynamic\w+|\w+Integer|QLinear\w+",
    ),
    Entry(
        ONLY_A_NAME,
        "TensorRT's parser knows the operator by name only",
        "use other operators when exporting",
        ISOLATE,
    ),
    Entry(
        r"[Nn]on-zero zero point is not supported|with UINT8 zero_point only on DLA",
        "the model is quantised asymmetrically: a zero point is not 0, and TensorRT takes symmetric int8 only",
        "quantise again with signed int8 and zero points of 0 for activations and weights, as quantize_static does with "
        "ActivationSymmetric and WeightSymmetric, or build from the float model",
        ISOLATE,
    ),
    Entry(
        r"Unsupported reduction type|with reduction is not supported",
        "TensorRT's scatter operators write; they do not add, multiply, or take the larger value where an element is written "
        "twice",
        "export without a reduction, such as torch.scatter in place of scatter_add, or with a product with one-hot rows",
        ISOLATE,
        r"Scatter\w+",
    ),
    Entry(
        r"input tensor A must be FP16|scale tensor must be FP16|only (4-bit|support).*MatMulNBits|input tensor B must",
        "TensorRT multiplies with quantised weights (MatMulNBits) in float16 only",
        "convert the model to float16, or build from the model whose weights are not quantised",
        ISOLATE,
        "MatMulNBits",
    ),
    Entry(
        r"exceeds the limit \(4096 characters\)",
        "a node or tensor has a name of more than 4096 characters",
        "give it a shorter name",
    ),
    Entry(
        r"must match\.|reshape wildcard -1|must have the same dimensions except|failed to broadcast|smaller than filter size",
        "the shapes of an operator's inputs do not fit together",
        "look at the shapes at the node; the model is invalid, or its weights belong to another version",
    ),
    Entry(
        r"TensorRT only supports|TensorRT does not support|is not supported",
        "TensorRT has the operator, and not this form of it",
        "use a form that the message names when exporting",
        ISOLATE,
    ),
    Entry(
        r"nested structures that exceed the maximum",
        "If, Loop or Scan are nested deeper than TensorRT takes",
        "flatten the control flow when exporting; conditions that are constants are folded by `trtnorm rewrite`",
        EXPLAIN,
    ),
    Entry(
        r"graph_jit\.cpp\S* CHECK\(status == CUDA_SUCCESS\)",
        "the builder needs a GPU here: with refit, refit_identical or strip_plan TensorRT for RTX uses one for most models",
        "leave these settings out of 'builder:', or build on a machine with a GPU",
        DOCTOR,
    ),
    Entry(
        r"no tactics to implement the operation",
        "no kernel fits: most often the workspace is too small",
        "give more under builder.workspace, or leave it out",
        ISOLATE,
    ),
    Entry(
        r"libnvinfer_lean",
        "a version-compatible engine carries a lean runtime, which this TensorRT does not come with",
        "add 'exclude_lean_runtime: true' under 'builder:'",
        DOCTOR,
    ),
    Entry(
        r"bad optional access",
        "fewer compute capabilities were set than were announced",
        "name them under builder.targets",
        DOCTOR,
    ),
    Entry(
        r"std::bad_alloc|[Oo]ut of memory|OutOfMemory|failed to allocate",
        "TensorRT found no memory",
        "free memory, or give the machine more; a build needs about three times the size of the model",
        DOCTOR,
    ),
    Entry(
        r"gave no reason|^Invalid Node - \S+$",
        "TensorRT does not say why; a missing input, a wrong number of inputs, and a Scan without a loop state do that",
        "compare the node with its operator's definition; a Scan takes a state that it hands through unchanged",
        ISOLATE,
    ),
)
