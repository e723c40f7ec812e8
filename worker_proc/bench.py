"""`python -m octavo.worker_proc.bench MODEL`: steps of the CPU runner alone, beside transformers.

No sockets and no scheduler: what is measured is the device's own speed. Prompts are read in one step as far
as the token budget allows; then every row decodes one token a step.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from ..protocol.config import WorkerConfig
from ..protocol.sampling import SamplingParams
from .devices import load_runner
from .made_plans import MadePlans
from .phases import StartPhases, describe
from .runner import Runner

_BUDGET = 2048


def main() -> None:
    """Print tokens a second for each batch size."""
    options = _options()
    sizes = [int(size) for size in options.batch.split(",")]
    runner = _load(options, max(sizes))
    results = {size: _measure(runner, size, options) for size in sizes}
    base = _transformers(options) if options.transformers else 0.0
    for size, (prefill_ms, step_ms) in results.items():
        rate = size * options.output_len / (prefill_ms + step_ms * (options.output_len - 1)) * 1e3
        ratio = f", {rate / base:.1f} x transformers" if base else ""
        _say(
            f"batch {size:3d}: {rate:7.1f} tok/s (prompts {prefill_ms:.0f} ms, step {step_ms:.2f} ms){ratio}"
        )
    if base:
        _say(f"transformers generate, batch 1: {base:.1f} tok/s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo.worker_proc.bench")
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--prompt-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--transformers", action="store_true", help="measure transformers generate beside it")
    return parser.parse_args()


def _load(options: argparse.Namespace, max_num_seqs: int) -> Runner:
    vocab_size = json.loads((options.model / "config.json").read_text())["vocab_size"]
    phases = StartPhases("start")
    config = WorkerConfig(
        run_dir="",
        scheduler_endpoint="",
        lifeline_fd=-1,
        parent_pid=0,
        device="cpu",
        model_path=str(options.model),
        vocab_size=vocab_size,
        eos_token_ids=(),
        load_format=options.load_format,
        dtype=options.dtype,
        max_model_len=options.prompt_len + options.output_len,
        max_num_seqs=max_num_seqs,
        cpu_threads=options.threads,
    )
    phases.enter("import")
    runner = load_runner(config, phases)
    _say(f"loaded in {describe(phases.finish())}")
    return runner


def _measure(runner: Runner, size: int, options: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds for all prompts of a batch, and for a decode step in the middle (median)."""
    runner.forget()
    prompt_len, output_len = options.prompt_len, options.output_len
    plans = MadePlans(
        runner,
        prompt_len=prompt_len,
        max_len=prompt_len + output_len,
        params=SamplingParams(temperature=options.temperature, top_p=options.top_p),
    )
    began = time.perf_counter()
    at_once = max(1, _BUDGET // prompt_len)
    for first in range(0, size, at_once):
        runner.execute(plans.prompts(range(first, min(first + at_once, size))))
    prefill_ms = (time.perf_counter() - began) * 1e3
    times = []
    for position in range(prompt_len, prompt_len + output_len - 1):
        began = time.perf_counter()
        runner.execute(plans.decodes(range(size), position))
        times.append((time.perf_counter() - began) * 1e3)
    return prefill_ms, sorted(times)[len(times) // 2]


def _transformers(options: argparse.Namespace) -> float:
    """Tokens a second of `generate` at batch 1, with the same sampling."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    prompt = torch.arange(options.prompt_len).unsqueeze(0) + 100
    arguments = {
        "do_sample": options.temperature > 0,
        "top_k": 0,
        "min_new_tokens": options.output_len,
        "max_new_tokens": options.output_len,
        "attention_mask": torch.ones_like(prompt),
        "pad_token_id": 0,
    }
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        model.generate(prompt, **arguments)
        rates.append(options.output_len / (time.perf_counter() - began))
    return sorted(rates)[1]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
