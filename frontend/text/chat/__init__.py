"""Chats to prompts: the model's chat templates, rendered as transformers renders them.

It owns what a template sees: messages as plain data, the jinja environment, which form of content a template
expects, and how a last message is left open. It does not know the HTTP API's request schema.
"""

from .templates import ChatTemplates

__all__ = ["ChatTemplates"]
