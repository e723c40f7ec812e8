"""Speed of the kernels on the device at hand, beside the ceiling that its memory or its matrix units set.

`octavo bench kernels` prints a line for each case and writes a file for each group.
"""
