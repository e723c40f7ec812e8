"""A CUDA device: steps are replays of captured graphs, and what they read stays on the device.

    rows      permanent rows as columns in device memory, and how a plan's changes reach them
    model     operators, attention and KV memory of a step
    steps     sizes that steps are padded to, graphs of them, drawing tokens, fetching results

Nothing here waits for the device but the collection of a result. The same code runs without a device, on
tensors of the CPU, when Triton interprets its kernels.
"""
