"""What a chat template expects of the arguments of earlier calls: an object, or its JSON text."""

from functools import lru_cache

from jinja2 import nodes

from .environment import parse_template

_NAME = "arguments"


@lru_cache(maxsize=64)
def wants_text(source: str) -> bool:
    """Whether the template prints arguments as they are. Raises jinja2.TemplateSyntaxError.

    Most templates write them by `tojson` or walk through them, as transformers' documentation asks; some join
    them to other text, and fail for an object.
    """
    tree = parse_template(source)
    for use in tree.find_all((nodes.Filter, nodes.Test, nodes.For, nodes.Call)):
        if any(_is_arguments(child) for child in use.iter_child_nodes()) or _is_method(use):
            return False
    joins = (nodes.Add, nodes.Concat, nodes.Output)
    return any(_is_arguments(child) for use in tree.find_all(joins) for child in use.iter_child_nodes())


def _is_method(node: nodes.Node) -> bool:
    """A call such as `arguments.items()`."""
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and _is_arguments(node.node.node)
    )


def _is_arguments(node: nodes.Node) -> bool:
    match node:
        case nodes.Getattr():
            return node.attr == _NAME
        case nodes.Getitem():
            return isinstance(node.arg, nodes.Const) and node.arg.value == _NAME
    return False
