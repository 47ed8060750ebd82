"""Turn PyTorch and ONNX models into TensorRT engines and get every normalization layer right."""

__version__ = "0.1.0"
