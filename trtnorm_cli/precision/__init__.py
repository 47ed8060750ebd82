"""Types for strongly typed networks: what a model becomes in the types that TensorRT has."""
