"""Export PyTorch modules to ONNX. Only the child process imports PyTorch (``child/worker.py``)."""
