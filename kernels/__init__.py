"""Numerical kernels, each in two forms: a plain torch reference and a Triton kernel of the same signature.

The reference defines what is right and is what runs on a CPU; the Triton form must equal it. Nothing here
knows rows, plans or requests: functions take tensors and return or fill tensors.
"""
