"""The cost of each kernel of a compiled engine, from the builder's list of kernels and the ONNX model that was built."""
