"""KV blocks: pools, prefix caches, and the block lists of rows for each KV group.

It does not know requests beyond the digests of their tokens, nor why a block is wanted or given up.
"""
