"""A model in exact arithmetic, but for float64's rounding: the truth that roundings are measured against.

The graph is evaluated node by node. Every operator has a kernel of its own in ``kernels``, or is evaluated by the nodes of the
function that defines it in ONNX, or, for a few, by ``onnx.reference``; any other is refused by name, never guessed. Each was
verified against a second implementation (tests/evaluate/float64), on the cases of the ONNX backend test and over drawn shapes
and attributes:

==================  ==========================================================================================================
verified against    operators
==================  ==========================================================================================================
PyTorch float64,    AveragePool, Attention, BatchNormalization (7, 9, 14, 15, also training), Celu, Col2Im, Conv,
1e-12               ConvTranspose, Det, Elu, Erf, Gelu, Global{Average,Lp,Max}Pool, GridSample, GroupNormalization (18, 21),
                    GRU, HardSwish, InstanceNormalization, LayerNormalization, LeakyRelu, LogSoftmax, LpPool, LRN, LSTM,
                    MaxPool (also indices), MaxUnpool, Mish, Resize (linear, cubic), RMSNormalization, RNN, Sigmoid, Softmax,
                    Softplus, Softsign, STFT, Tanh, trigonometric and hyperbolic functions; Selu to 1e-7 (its constants)
ONNX Runtime        Abs, Add, AffineGrid, And, ArgMax, ArgMin, BitShift, Bitwise*, Cast, CastLike, Ceil, CenterCropPad, Clip,
float64, 1e-12      Compress, Concat, ConstantOfShape, CumProd, CumSum, DeformConv, DepthToSpace, DFT (forward), Div, Einsum,
                    Equal, Exp, Expand, EyeLike, Flatten, Floor, Gather, GatherElements, GatherND, Gemm, Greater, If, IsInf,
                    IsNaN, Less, Log, Loop, LpNormalization, MatMul, Max, Min, Mod, Mul, Neg, NegativeLogLikelihoodLoss,
                    NonZero, Or, Pad, Pow, PRelu, Range, Reciprocal, Reduce*, Relu, Reshape, ReverseSequence, Round, Scan,
                    Scatter, ScatterElements, ScatterND, Shape, Sign, Size, Slice, SoftmaxCrossEntropyLoss, SpaceToDepth,
                    Split, Sqrt, Squeeze, Sub, Sum, Swish, TensorScatter, Tile, TopK, Transpose, Trilu, Unique, Unsqueeze,
                    Where, Xor
ONNX Runtime        Conv, ConvTranspose and pooling with ``auto_pad``, Hardmax, HardSigmoid, Mean, MelWeightMatrix,
float32, 2e-6       MeanVarianceNormalization, OneHot, Resize (every mode and coordinate transformation), RNN, GRU and LSTM
                    with every option, RoiAlign (1e-5), RotaryEmbedding, ThresholdedRelu, TfIdfVectorizer, Upsample; and the
                    integers of ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, NonMaxSuppression,
                    QLinearConv, QLinearMatMul, QuantizeLinear (to one step: a tie in float32 is none in float64)
the operator's      all that ONNX defines by a function: Celu, Clip, Elu, GroupNormalization, HardSigmoid, LayerNormalization,
own expansion,      LogSoftmax, MeanVarianceNormalization, Mish, Reduce*, RMSNormalization, Selu, SequenceMap, Shrink, Softmax,
float64, 1e-12      ThresholdedRelu, ...
expected outputs    CausalConvWithState, FlexAttention, LinearAttention, SwiGLU (by their function bodies), sequences,
of the cases        optionals, strings, Not
==================  ==========================================================================================================

``onnx.reference`` 1.23.2 was the start and is not used where it is wrong on a model raised to float64: BatchNormalization 9
mixes the statistics of the batch into inference; AffineGrid, CausalConvWithState, Erf, Gelu, GroupNormalization,
LinearAttention and the window functions round to float32 inside (3e-8 to 1e-7); DeformConv and GridSample lose 1e-9 to 1e-8;
Resize with align_corners uses a fractional output size; Unique ignores ``sorted`` with one output; MeanVarianceNormalization,
Scatter and Upsample fail.

ONNX Runtime in float64 is no truth either: its GroupNormalization, window functions, inverse DFT, Gelu (tanh), Attention and
Shrink lose 1e-9 to 1e-7. Deliberate deviations from it: a Resize with ``tf_crop_and_resize`` crops also an axis that keeps its
length, and a Slice that steps backward ends where it says. Where implementations disagree about a size (a ConvTranspose with
SAME padding and a kernel smaller than its stride, pooling with VALID and ``ceil_mode``) the node is refused.
"""

from __future__ import annotations

from trtnorm_cli.evaluate.float64.errors import BudgetExceeded, ReferenceUnavailable, UnsupportedOperator
from trtnorm_cli.evaluate.float64.evaluator import Evaluation, Reference, Watch, evaluate_float64
from trtnorm_cli.evaluate.float64.float64_model import Float64Model
from trtnorm_cli.evaluate.float64.free_values import FreeValues, OtherProduct, SameProducts
from trtnorm_cli.evaluate.float64.known import Known, Place
from trtnorm_cli.evaluate.float64.perturbation import Perturbation
from trtnorm_cli.evaluate.float64.ties import Follower, Ties, nearness

__all__ = [
    "BudgetExceeded",
    "Evaluation",
    "Float64Model",
    "Follower",
    "FreeValues",
    "Known",
    "OtherProduct",
    "Perturbation",
    "Place",
    "Reference",
    "ReferenceUnavailable",
    "SameProducts",
    "Ties",
    "UnsupportedOperator",
    "Watch",
    "evaluate_float64",
    "nearness",
]
