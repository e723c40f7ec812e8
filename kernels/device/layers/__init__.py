"""Triton forms of what a transformer layer does besides attention."""
