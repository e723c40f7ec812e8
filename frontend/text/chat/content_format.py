"""What a chat template expects of a message's content: a string, or a list of parts."""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache

from jinja2 import nodes

from .environment import parse_template


class ContentFormat(Enum):
    """`STRING`: the template prints content as it is. `PARTS`: it loops over content's parts and does nothing
    else. `EITHER`: it loops over parts and tests for a string first."""

    STRING = "string"
    PARTS = "parts"
    EITHER = "either"


_TYPE_TESTS = frozenset({"string", "iterable", "sequence", "mapping"})


@lru_cache(maxsize=64)
def content_format(source: str) -> ContentFormat:
    """Find out from the template's syntax tree. Raises jinja2.TemplateSyntaxError."""
    tree = parse_template(source)
    names = _names_for_content(tree)
    if not any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For)):
        return ContentFormat.STRING
    tests = (test for test in tree.find_all(nodes.Test) if test.name in _TYPE_TESTS)
    return (
        ContentFormat.EITHER if any(_is_content(test.node, names) for test in tests) else ContentFormat.PARTS
    )


def _names_for_content(tree: nodes.Template) -> set[str]:
    """Variables that stand for a message's content: assigned from it, or parameters called `content`."""
    names = {
        parameter.name
        for macro in tree.find_all(nodes.Macro)
        for parameter in macro.args
        if parameter.name == "content"
    }
    assignments = list(tree.find_all(nodes.Assign))
    while found := set(_assigned_from_content(assignments, names)) - names:
        names |= found
    return names


def _assigned_from_content(assignments: list[nodes.Assign], names: set[str]) -> Iterator[str]:
    for assignment in assignments:
        if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, names):
            yield assignment.target.name


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """Whether the expression is a message's content itself, not something made from it."""
    match node:
        case nodes.Name():
            return node.name in names
        case nodes.Getattr():
            return node.attr == "content"
        case nodes.Getitem():
            return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
        case nodes.CondExpr():
            branches = [node.expr1] if node.expr2 is None else [node.expr1, node.expr2]
            return any(_is_content(branch, names) for branch in branches)
        case nodes.Or():
            return _is_content(node.left, names)
    return False
