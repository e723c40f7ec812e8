"""A device without a model: a timing model, and a shadow KV that makes every token depend on every block.

It speaks the real protocol, so scheduling, overload and fault tests run on it without torch. It knows
nothing of text: tokens are numbers below the vocabulary's size.
"""
