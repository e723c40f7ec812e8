"""Attention over the paged KV cache: a work plan built on the device, and a kernel for each kind of row."""
