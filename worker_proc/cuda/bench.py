"""`python -m octavo.worker_proc.cuda.bench MODEL`: steps of the runner alone, beside what a device can do.

No sockets and no scheduler. Steps are submitted one ahead of the one that is waited for, as in serving: the
time of a step is then that of the device, unless the host is slower.
"""

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ...kernels.bench.ceilings import Ceilings, measure_ceilings
from ...protocol.config import WorkerConfig
from ...protocol.sampling import SamplingParams
from ...protocol.steps import StepPlan
from ..made_plans import MadePlans
from ..models import read_config
from ..phases import StartPhases, describe
from .load import load_cuda
from .profile import kernel_times
from .runner import CudaRunner

_READ = 4.5e12  # bytes a second, the best read seen on an H200


@dataclass(frozen=True)
class Line:
    """One measurement."""

    what: str
    wall_ms: float  # from step to step
    device_ms: float  # from a step's begin to its end on the device
    host_ms: float  # of the submitting thread
    tokens_per_second: float
    bound_ms: float  # the least that reading weights and KV, or multiplying, takes

    def __str__(self) -> str:
        return (
            f"{self.what:28s} {self.wall_ms:8.3f} ms/step (device {self.device_ms:7.3f}, "
            f"host {self.host_ms:6.3f}) {self.tokens_per_second:9.0f} tok/s, bound {self.bound_ms:7.3f} ms "
            f"= {100 * self.bound_ms / self.wall_ms:3.0f} %"
        )


def main() -> int:
    """Print a line for each measurement; returns 1 when one failed."""
    options = _options()
    ceilings = measure_ceilings()
    _say(f"{torch.cuda.get_device_name()}, {ceilings}")
    phases = StartPhases("start")
    phases.enter("import")
    runner = load_cuda(_config(options), phases)
    _say(f"loaded in {describe(phases.finish())}; {runner.kv_groups[0]}")
    bench = _Bench(runner, options, ceilings)
    failed = False
    for measure in bench.measures():
        try:
            measure()
        except Exception:  # the other measurements are still worth having
            traceback.print_exc()
            failed = True
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in bench.lines], indent=1))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo.worker_proc.cuda.bench")
    parser.add_argument("model", type=Path, help="a model folder; config.json is enough")
    parser.add_argument("--batch", default="1,16,64,256")
    parser.add_argument("--context", type=int, default=250, help="tokens before the first measured step")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--prompts", default="4x4096,64x128", help="batches of prompts to read")
    parser.add_argument("--budget", type=int, default=8192, help="most tokens of a step")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", default="", help="fp8, or nothing")
    parser.add_argument("--block-size", type=int, default=0)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--profile", action="store_true", help="times of kernels for each batch")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _config(options: argparse.Namespace) -> WorkerConfig:
    return WorkerConfig(
        run_dir="",
        scheduler_endpoint="",
        lifeline_fd=-1,
        parent_pid=0,
        device="cuda",
        model_path=str(options.model),
        vocab_size=read_config(options.model).vocab_size,
        eos_token_ids=(),
        load_format="dummy",
        dtype=options.dtype,
        quantization=options.quantization,
        block_size=options.block_size,
        max_model_len=8192,
        max_num_batched_tokens=options.budget,
        enforce_eager=options.enforce_eager,
    )


class _Bench:
    """Measurements of one runner."""

    def __init__(self, runner: CudaRunner, options: argparse.Namespace, ceilings: Ceilings) -> None:
        self._runner = runner
        self._options = options
        self._ceilings = ceilings
        self._model = read_config(options.model)
        self.lines: list[Line] = []

    def measures(self) -> Iterable[Callable[[], None]]:
        """All that was asked for."""
        for size in map(int, self._options.batch.split(",")):
            yield lambda size=size: self._decode(size)
        for batch in self._options.prompts.split(","):
            count, length = map(int, batch.split("x"))
            yield lambda count=count, length=length: self._prompts(count, length)

    def _decode(self, size: int) -> None:
        context, rows = self._options.context, range(size)
        warm, steps = 8, self._options.steps
        plans = self._plans(context, context + 2 * (warm + steps) + 32)
        at_once = max(1, self._options.budget // context)
        for first in range(0, size, at_once):
            self._runner.execute(plans.prompts(range(first, min(first + at_once, size))))
        self._pipeline(plans.decodes(rows, context + step) for step in range(warm))
        measured = (plans.decodes(rows, context + warm + step) for step in range(steps))
        wall, device, host = self._pipeline(measured)
        bound = self._decode_bound(size, context)
        self._note(Line(f"decode {size} at {context}", wall, device, host, size / wall * 1e3, bound))
        if self._options.profile:
            more = (plans.decodes(rows, context + warm + steps + step) for step in range(8))
            _say(kernel_times(lambda: self._pipeline(more), 8))

    def _prompts(self, count: int, length: int) -> None:
        budget, tokens = self._options.budget, count * length
        plans = self._plans(length, length + 16)
        at_once = max(1, budget // length)
        makers = [
            plans.chunk(range(first, min(first + at_once, count)), start, min(length - start, budget))
            for first in range(0, count, at_once)
            for start in range(0, length, budget)
        ]
        self._pipeline(iter(makers[:1]))  # its graph or its kernels are there then
        self._runner.forget()
        wall, device, host = self._pipeline(iter(makers))
        bound = 2 * self._model.num_weights * (tokens / len(makers)) / self._product_rate * 1e3
        rate = tokens / (wall * len(makers)) * 1e3
        self._note(Line(f"prompts {count} x {length}", wall, device, host, rate, bound))
        if self._options.profile:
            self._runner.forget()
            _say(kernel_times(lambda: self._pipeline(iter(makers)), len(makers)))

    def _plans(self, prompt_len: int, max_len: int) -> MadePlans:
        self._runner.forget()
        params = SamplingParams(temperature=self._options.temperature, top_p=self._options.top_p)
        return MadePlans(self._runner, prompt_len=prompt_len, max_len=max_len, params=params)

    def _pipeline(self, plans: Iterable[StepPlan]) -> tuple[float, float, float]:
        """Wall, device and host time of a step: the mean, and two medians, in milliseconds."""
        device, host, flying = [], [], 0
        began = time.perf_counter()
        for plan in plans:
            before = time.perf_counter()
            self._runner.submit(plan)
            host.append((time.perf_counter() - before) * 1e3)
            flying += 1
            if flying == 2:
                device.append(self._wait())
                flying -= 1
        while flying:
            device.append(self._wait())
            flying -= 1
        wall = (time.perf_counter() - began) * 1e3 / len(device)
        return wall, statistics.median(device), statistics.median(host)

    def _wait(self) -> float:
        while (output := self._runner.collect()) is None:
            pass
        if output.errors:
            raise RuntimeError(f"a row failed: {output.errors[0].message}")
        return output.device_ms

    @property
    def _product_rate(self) -> float:
        return self._ceilings.flops * (2 if self._options.quantization else 1)

    def _decode_bound(self, size: int, context: int) -> float:
        """Milliseconds to read the weights and the KV once, or to multiply, whichever is longer."""
        model, head = self._model, self._model.vocab_size * self._model.hidden_size
        embedding = 0 if model.tied_head else head
        layers = model.num_weights - embedding - head
        weights = layers * (1 if self._options.quantization else 2) + 2 * head
        reads = weights + size * context * 4 * model.num_layers * model.kv_size
        products = 2 * (layers / self._product_rate + head / self._ceilings.flops) * size
        return max(reads / _READ, products) * 1e3

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        _say(str(line))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
