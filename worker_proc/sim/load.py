"""Bringing a simulated device up."""

import time

from ...protocol.config import WorkerConfig
from ...protocol.errors import ModelError
from ...protocol.lifecycle import KVGroup
from ..phases import StartPhases
from .options import SimOptions, parse_options
from .runner import SimRunner

_BLOCK_SIZE = 16
_NUM_BLOCKS = 4096
_TICK = 0.05  # seconds between two reports of progress


def load_sim(config: WorkerConfig, phases: StartPhases) -> SimRunner:
    """The runner of `config.sim`; takes as long to load as that says."""
    options = parse_options(config.sim)
    phases.enter("weights")
    ends = time.monotonic() + options.load_s
    while (left := ends - time.monotonic()) > 0:
        phases.fraction = 1 - left / options.load_s
        time.sleep(min(left, _TICK))
    if options.fail_load:
        raise ModelError(f"{config.model_path}: the simulated load was told to fail")
    return SimRunner(config, options, _groups(config, options))


def _groups(config: WorkerConfig, options: SimOptions) -> tuple[KVGroup, ...]:
    num_blocks, block_size = config.num_blocks or _NUM_BLOCKS, config.block_size or _BLOCK_SIZE
    return tuple(
        KVGroup(num_blocks, block_size, options.window if group else 0) for group in range(options.groups)
    )
