"""The shape of the tree: who may import whom, what is never used, what stays light, what stays small."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import octavo

ROOT = Path(octavo.__file__).parent
PARTS = ("protocol", "kernels", "worker_proc", "scheduler_proc", "frontend")

# part: the parts it may import besides itself
ARROWS = {
    "protocol": set(),
    "kernels": set(),
    "worker_proc": {"protocol", "kernels"},
    "scheduler_proc": {"protocol"},
    "frontend": {"protocol"},
}
# part: the only libraries it may use, where there are few
LIBRARIES = {
    "protocol": {"msgspec", "zmq"},
    "kernels": {"torch", "triton", "numpy"},
    "scheduler_proc": {"msgspec", "zmq", "numpy", "prometheus_client", "matplotlib"},
}
# part: libraries that it must not load
FORBIDDEN = {"frontend": {"torch", "triton"}}
# The one place that needs a library which its part must not load runs as a process of its own.
EXCEPTIONS = {"frontend/text/convert.py"}

MAX_MODULE = 400  # lines
MAX_FUNCTION = 60
MAX_MEDIAN = 150
MAX_LIGHT_SECONDS = 0.2

Located = tuple[Path, ast.Module]


def modules(*parts: str) -> list[Located]:
    """The parsed modules of these parts, of all parts when none is named."""
    paths = [path for part in parts or PARTS for path in sorted((ROOT / part).rglob("*.py"))]
    if not parts:
        paths += sorted(ROOT.glob("*.py"))
    return [(path, ast.parse(path.read_text(), str(path))) for path in paths]


def imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports, also inside functions."""
    package = ["octavo", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [".".join([*base, *filter(None, [node.module])])]
            if node.module is None:
                names = [f"{names[0]}.{alias.name}" for alias in node.names]
            yield from ((node.lineno, name) for name in names)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@pytest.mark.parametrize("part", PARTS)
def test_imports_follow_the_arrows(part: str) -> None:
    wrong = []
    for path, tree in modules(part):
        for line, name in imports(path, tree):
            target = name.split(".")[1:2] if name.startswith("octavo.") else []
            if target and target[0] in PARTS and target[0] not in ARROWS[part] | {part}:
                wrong.append(f"{where(path, line)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("part", LIBRARIES)
def test_a_part_uses_only_its_libraries(part: str) -> None:
    allowed = LIBRARIES[part] | sys.stdlib_module_names | {"octavo"}
    wrong = [
        f"{where(path, line)} imports {name}"
        for path, tree in modules(part)
        for line, name in imports(path, tree)
        if name.split(".")[0] not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("part", FORBIDDEN)
def test_a_part_does_without_the_heavy_libraries(part: str) -> None:
    wrong = [
        f"{where(path, line)} imports {name}"
        for path, tree in modules(part)
        for line, name in imports(path, tree)
        if name.split(".")[0] in FORBIDDEN[part] and str(path.relative_to(ROOT)) not in EXCEPTIONS
    ]
    assert wrong == []


def test_packages_import_each_other_relatively() -> None:
    wrong = [
        f"{where(path, line)} imports {name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        for line, name in _absolute_names(node)
        if name.split(".")[0] == "octavo"
    ]
    assert wrong == []


def _absolute_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield node.lineno, str(node.module)


def test_nothing_is_pickled() -> None:
    """A pickle runs code of whoever wrote it: none is read or written, in a message or in a file."""
    modules_banned = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}
    names_banned = {"send_pyobj", "recv_pyobj", "send_serialized", "recv_serialized", "allow_pickle"}
    wrong = []
    for path, tree in modules():
        wrong += [
            f"{where(path, line)} imports {name}"
            for line, name in imports(path, tree)
            if name.split(".")[0] in modules_banned
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in names_banned:
                wrong.append(f"{where(path, node.lineno)} uses {node.attr}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
                wrong.append(f"{where(path, node.lineno)} uses {ast.unparse(node)}")
            if isinstance(node, ast.keyword) and node.arg in names_banned:
                wrong.append(f"{where(path, node.value.lineno)} passes {node.arg}")
    assert wrong == []


def test_the_package_list_is_complete() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"octavo"} | {
        ".".join(["octavo", *path.parent.relative_to(ROOT).parts])
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
    }
    assert set(listed) == found
    assert listed == sorted(listed)


def test_every_package_says_what_it_owns() -> None:
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            init = path.parent / "__init__.py"
            assert init.exists(), f"{path.parent} has no __init__.py"
            assert ast.get_docstring(ast.parse(init.read_text())), f"{init} has no docstring"


def test_modules_and_functions_stay_small() -> None:
    lengths, wrong = [], []
    for path, tree in modules():
        length = len(path.read_text().splitlines())
        lengths.append(length)
        if length > MAX_MODULE:
            wrong.append(f"{where(path, 1)} has {length} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MAX_FUNCTION:
                    wrong.append(f"{where(path, node.lineno)} {node.name} has {size} lines")
    assert wrong == []
    assert sorted(lengths)[len(lengths) // 2] <= MAX_MEDIAN


def test_scripts_stay_short() -> None:
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.suffix == "":
            assert len(path.read_text().splitlines()) <= 20, path.name
            assert path.stat().st_mode & 0o111, f"{path.name} is not executable"


def test_nothing_is_left_for_later() -> None:
    marks = ("TODO", "FIXME", "XXX")
    paths = [path for path, _ in modules()] + sorted((ROOT / "tests").rglob("*.py"))
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(mark in line for mark in marks) and path != Path(__file__)
    ]
    assert wrong == []


def test_the_root_names_the_public_api() -> None:
    assert set(octavo.__all__) == {
        "LLM",
        "AsyncEngineArgs",
        "AsyncLLMEngine",
        "BeamSearchOutput",
        "BeamSearchParams",
        "BeamSearchSequence",
        "CompletionOutput",
        "EngineArgs",
        "LLMEngine",
        "Logprob",
        "RequestOutput",
        "RequestOutputKind",
        "SamplingParams",
        "StructuredOutputsParams",
        "__version__",
    }
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = octavo.nothing


LIGHT = {
    "import octavo": "import octavo",
    "octavo --help": "from octavo.frontend.cli.main import main; main(['--help'])",
    "octavo serve --help": "from octavo.frontend.cli.main import main; main(['serve', '--help'])",
}


@pytest.mark.parametrize("what", LIGHT)
def test_it_is_light(what: str) -> None:
    """Processor time inside the process, the best of five: neither the interpreter's own start nor what else
    the machine does is ours."""
    heavy = {"torch", "numpy", "transformers", "tokenizers", "starlette", "asyncio"}
    code = f"""
import sys, time, atexit
began = time.process_time()
def report():
    heavy = sorted(set(sys.modules) & {heavy})
    sys.stderr.write(f"RESULT {{time.process_time() - began:.4f}} {{','.join(heavy)}}")
atexit.register(report)
{LIGHT[what]}
"""
    taken = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds, loaded = done.stderr.rpartition("RESULT ")[2].split(" ")
        assert loaded == "", f"{what} loads {loaded}"
        taken.append(float(seconds))
    assert min(taken) < MAX_LIGHT_SECONDS, f"{what} takes {taken} s"
