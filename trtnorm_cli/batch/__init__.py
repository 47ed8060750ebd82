"""Many models for many targets: a plan of builds, run as one graph of tasks on Dask."""
