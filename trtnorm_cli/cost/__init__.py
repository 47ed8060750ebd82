"""The cost of an engine on a device, from what its kernels read, write and compute. Nothing is run."""
