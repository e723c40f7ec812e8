"""What happens to every request before and after its route: names, errors, counts, keys.

Plain ASGI, since a token of a stream passes through each of them.
"""
