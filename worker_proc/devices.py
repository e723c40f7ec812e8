"""Which runner serves which device."""

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
        from .cpu.load import load_cpu

        return load_cpu(config, phases)
    raise UsageError(f"device must be one of cpu, sim; got {config.device!r}", param="device")
