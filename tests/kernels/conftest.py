"""Kernels run under Triton's interpreter on a CPU, or compiled on a CUDA device with `-m gpu`.

Triton decides which of the two when a kernel is defined, so one test run is one of them.
"""

import os

import pytest
import torch

# Relative root-mean-square error that a kernel may have against the float32 reference, by its data's type.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def pytest_configure(config):
    if config.getoption("markexpr") != "gpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        compiled = metafunc.config.getoption("markexpr") == "gpu"
        device = pytest.param("cuda", marks=pytest.mark.gpu) if compiled else "cpu"
        metafunc.parametrize("device", [device])


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request):
    return request.param


@pytest.fixture(params=["float32", "half"])
def product_dtype(request, device):
    """The dtype for kernels with matrix products, which the interpreter has not for bfloat16."""
    if request.param == "float32":
        return torch.float32
    return torch.bfloat16 if device == "cuda" else torch.float16


def relative_error(got, expected):
    """Root-mean-square error over the root mean square of the expected values; NaN when either has a NaN."""
    got, expected = got.double().cpu(), expected.double().cpu()
    return float(((got - expected).square().mean() / expected.square().mean().clamp(min=1e-30)).sqrt())


@pytest.fixture
def assert_close():
    def check(got, expected, dtype=None):
        error = relative_error(got, expected)
        limit = TOLERANCE[dtype or got.dtype]
        assert error <= limit, f"relative error {error:.2e}, at most {limit:.0e}"

    return check


@pytest.fixture
def make_paged(device):
    """Builds the arguments of `paged_attention` for rows given as (queries, context) pairs.

    Blocks are shuffled, and slots that no row owns hold NaN, as memory that nobody cleared may.
    """

    def make(rows, *, num_heads, num_kv_heads, head_dim, block_size, dtype=torch.float32):
        num_owned = [-(-length // block_size) for _, length in rows]
        num_blocks = sum(num_owned) + 3
        shape = (num_blocks, block_size, num_kv_heads, head_dim)
        caches = [torch.full(shape, float("nan"), dtype=dtype) for _ in range(2)]
        free = torch.randperm(num_blocks).tolist()
        tables = torch.randint(0, num_blocks, (len(rows), max(num_owned) + 2), dtype=torch.int32)
        for row, (_, length) in enumerate(rows):
            blocks = torch.tensor([free.pop() for _ in range(num_owned[row])], dtype=torch.int64)
            tables[row, : len(blocks)] = blocks.int()
            positions = torch.arange(length)
            slots = blocks[positions // block_size] * block_size + positions % block_size
            for cache in caches:
                values = torch.randn(length, num_kv_heads, head_dim).to(dtype)
                cache.view(-1, num_kv_heads, head_dim)[slots] = values
        starts = torch.tensor([0] + [n for n, _ in rows]).cumsum(0).int()
        q = torch.randn(int(starts[-1]), num_heads, head_dim).to(dtype)
        lengths = torch.tensor([length for _, length in rows], dtype=torch.int32)
        return [x.to(device) for x in (q, *caches, tables, starts, lengths)]

    return make


@pytest.fixture(autouse=True)
def _device_still_works(request):
    """Ends a parallel worker whose device context broke, so that the tests after it get a new one."""
    yield
    if (
        "device" in request.fixturenames
        and os.environ.get("PYTEST_XDIST_WORKER")
        and torch.cuda.is_available()
    ):
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            os._exit(1)
