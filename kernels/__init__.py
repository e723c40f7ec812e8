"""Numerical kernels, each in two forms: a plain torch reference and a Triton kernel of the same signature.

The reference defines what is right and runs anywhere; the Triton form must equal it. `cpu` holds what a CPU
runs faster than the reference. Functions take tensors and return or fill tensors: a row is an index to them.
They know no requests, models or processes.
"""
