"""Inference engines: all-reduce kernels of their own, and by which size and number of ranks they are taken."""
