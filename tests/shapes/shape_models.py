"""Models whose sizes must follow a rule, as text, with what the rule is."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import parse, random

# The encoder and the correlation of RAFT in little: features at an eighth of the size, brought back by a factor of eight.
RAFT = """
    g (float[N, 3, H, W] image) => (float[N, ?, ?, ?] flow) {
        [stem] c0 = Conv<strides=[2, 2], pads=[3, 3, 3, 3]>(image, w0)
        [norm0] n0 = InstanceNormalization(c0, s0, b0)
        r0 = Relu(n0)
        [down1] c1 = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r0, w1)
        [norm1] n1 = InstanceNormalization(c1, s0, b0)
        r1 = Relu(n1)
        [down2] c2 = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r1, w1)
        [correlation] e = ReduceSum(c2, one)
        [half] p = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(e)
        sizes = Shape<start=2, end=4>(e)
        channels = Shape<start=0, end=2>(e)
        [whole] target = Concat<axis=0>(channels, sizes)
        [again] q = Resize<mode="nearest">(p, , , target)
        [add] cost = Add(e, q)
        [features] f = Concat<axis=1>(c2, cost)
        [up] u = Resize<mode="nearest">(f, , scales)
        [join] flow = Concat<axis=1>(image, u)
    }"""


def raft() -> onnx.ModelProto:
    weights = {
        "w0": random(4, 3, 7, 7),
        "w1": random(4, 4, 3, 3),
        "s0": np.ones(4, np.float32),
        "b0": np.zeros(4, np.float32),
        "one": np.array([1]),
        "scales": np.array([1, 1, 8, 8], np.float32),
    }
    return parse(RAFT, weights)
