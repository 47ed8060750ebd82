"""Turn PyTorch and ONNX models into TensorRT engines and get every normalization layer right."""

import os

__version__ = "0.1.0"

# ONNX Runtime reports its use to Microsoft, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
