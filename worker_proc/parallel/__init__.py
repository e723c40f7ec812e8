"""Ranks of a worker group that compute a model together, and what they tell each other within a step.

It knows tensors, not models: what is summed and what is joined, the decoder says. It knows nothing of the
scheduler, which sends each rank the same plans.
"""

from .ranks import ALONE, Ranks

__all__ = ["ALONE", "Ranks"]
