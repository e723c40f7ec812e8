"""Every Triton operation has a reference of the same arguments, a test, and a kernel that explains itself."""

import ast
import inspect
from pathlib import Path

import octavo.kernels.device as device
import octavo.kernels.reference as reference

DEVICE = Path(device.__file__).parent
TESTS = Path(__file__).parent
# Operations whose device form fills buffers where the reference returns lists.
OTHER_NAME = {"plan_attention": "split_attention"}
# Functions that allocate or size buffers, and compute nothing.
BUFFERS = {name for name in device.__all__ if name.startswith("make_") or name.endswith("_size")}
OPERATIONS = sorted(
    name for name in device.__all__ if inspect.isfunction(getattr(device, name)) and name not in BUFFERS
)


def jit_functions():
    """(module, node) of every function under triton.jit."""
    for path in sorted(DEVICE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                if any(text.startswith("triton.jit") for text in decorators):
                    yield path.relative_to(DEVICE), node


def test_every_operation_has_a_reference_of_the_same_arguments():
    assert len(OPERATIONS) >= 20
    for name in OPERATIONS:
        if name in OTHER_NAME:
            assert hasattr(reference, OTHER_NAME[name])
            continue
        expected = inspect.signature(getattr(reference, name)).parameters
        got = inspect.signature(getattr(device, name)).parameters
        missing = [parameter for parameter in expected if parameter not in got]
        assert missing == [], f"{name} lacks {missing}"
        positional = [p.name for p in expected.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert list(got)[: len(positional)] == positional, name


def test_every_operation_has_a_test():
    text = "\n".join(path.read_text() for path in TESTS.glob("test_*.py"))
    assert [name for name in OPERATIONS if f".{name}(" not in text and f'"{name}"' not in text] == []


def test_every_kernel_is_launched_by_its_module_and_says_its_grid():
    kernels = [(path, node) for path, node in jit_functions() if node.name.endswith("_kernel")]
    assert len(kernels) >= 15
    for path, node in kernels:
        assert "Grid (" in (ast.get_docstring(node) or ""), f"{path} {node.name} does not say its grid"
        assert f"{node.name}[" in (DEVICE / path).read_text(), f"{path} {node.name} is never launched"


def test_lengths_of_a_step_do_not_specialize_a_kernel():
    """An argument that changes with the batch would compile anew in the middle of serving."""
    varying = {"num_rows", "num_tokens", "num_lines", "num_items", "num_tiles", "chunk", "capacity"}
    for path, node in jit_functions():
        if not node.name.endswith("_kernel") or node.name == "_gemv_kernel":
            continue
        plain = {arg.arg for arg in node.args.args if arg.annotation is None}
        exempt = ast.unparse(node.decorator_list[0])
        for name in plain & varying:
            assert f"'{name}'" in exempt, f"{path} {node.name} specializes on {name}"
