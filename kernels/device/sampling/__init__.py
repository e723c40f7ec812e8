"""Triton forms of what leads from logits to tokens. A line whose permanent row is -1 is padding."""
