"""Which runner serves which device."""

import os

from ..protocol.config import WorkerConfig
from ..protocol.errors import UsageError
from .phases import StartPhases
from .runner import Runner


def load_runner(config: WorkerConfig, phases: StartPhases) -> Runner:
    """Load the model onto the configured device. Raises a StartupError that says what to change."""
    if config.device == "sim":
        from .sim.load import load_sim

        return load_sim(config, phases)
    if config.device == "cpu":
        # The OpenMP runtime reads these once, when torch brings it in. A thread without work spins for less
        # than a millisecond, since waking one for each operator of a step costs half as much again as all
        # matrix products, and then sleeps: other processes need the cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
        from .cpu.load import load_cpu

        return load_cpu(config, phases)
    if config.device == "cuda":
        from .cuda.load import load_cuda

        return load_cuda(config, phases)
    raise UsageError(f"device must be one of cpu, cuda, sim; got {config.device!r}", param="device")
