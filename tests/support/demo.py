"""The demo model for tests: fetched and converted once into the user's cache, as users get it."""

from functools import cache
from pathlib import Path

from octavo.frontend.demo import ensure_demo_model


@cache
def demo_model() -> Path:
    """The demo model's folder."""
    return ensure_demo_model(progress=False)
