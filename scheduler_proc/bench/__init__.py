"""The scheduler's own time for a step, measured: by rows, by what waits, and around one very long prompt.

From the bytes of a result to the bytes of the next plan and of the deltas: codec, stop checks, block hashing
and planning are in; sockets and metrics are not.
"""
