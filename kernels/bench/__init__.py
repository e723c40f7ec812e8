"""Speed of the kernels on the device at hand, beside the ceiling that its memory or its matrix units set.

`python -m octavo.kernels.bench FOLDER [GROUP ...]` prints a line for each case and writes FOLDER/GROUP.json.
"""
