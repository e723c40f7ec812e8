"""Output that obeys a grammar: a matcher for each row that has one, and the masks that it gives.

It owns the matchers from the row's coming to its release, and compiles them on a thread. It knows tokens and
bit masks; it does not know tensors, devices or how a token is drawn.
"""

from .guides import GuideError, Guides

__all__ = ["GuideError", "Guides"]
