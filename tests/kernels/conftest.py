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
        os.environ["TRITON_INTERPRET"] = "1"


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
