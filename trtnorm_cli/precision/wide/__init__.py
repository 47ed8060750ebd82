"""int64 and double, and the types that TensorRT has not: what each tensor of them becomes, openly."""
