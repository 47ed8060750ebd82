"""PyTorch modules to ONNX. Only the child process imports PyTorch; see ``worker.py``."""
