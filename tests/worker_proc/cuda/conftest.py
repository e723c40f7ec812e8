"""The CUDA runner on tensors of the CPU with interpreted kernels, or on a device with `-m gpu`."""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") != "gpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
