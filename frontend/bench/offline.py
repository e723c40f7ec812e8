"""`octavo bench offline`: `LLM.generate` on named work, with random weights and prompts of token ids.

A line for each piece of work, beside the least time that reading and multiplying take.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from ...protocol.sampling import SamplingParams
from ..engine.llm import LLM
from .bounds import ModelCost, least_seconds, model_cost
from .device import measure_ceilings
from .models import SHAPES, make_model_folder
from .work import NAMES, Work, make_prompts, make_work


@dataclass(frozen=True)
class Row:
    """One measurement."""

    model: str
    work: str
    what: str
    seconds: float
    output_tokens_per_second: float
    prompt_tokens_per_second: float
    ms_per_token: float  # of one request, prompt included
    bound_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.model:16s} {self.what:34s} {self.seconds:8.2f} s "
            f"{self.output_tokens_per_second:9.0f} out tok/s {self.prompt_tokens_per_second:9.0f} in tok/s "
            f"{self.ms_per_token:7.2f} ms/token, bound {self.bound_seconds:6.2f} s = "
            f"{100 * self.bound_seconds / self.seconds:3.0f} %"
        )


def main() -> int:
    """Measure, print, and write OUT/offline.json; returns 1 when something failed."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    ceilings = measure_ceilings()
    _say(str(ceilings or "no CUDA device: no ceilings"))
    rows: list[Row] = []
    failed = False
    for name in options.model.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                _measure_model(name, Path(scratch), options, rows)
            except Exception:  # the other models are still worth measuring
                traceback.print_exc()
                failed = True
    report = {
        "command": sys.argv,
        "machine": platform.node(),
        "ceilings": ceilings and asdict(ceilings),
        "rows": [asdict(row) for row in rows],
    }
    (options.out / "offline.json").write_text(json.dumps(report, indent=1))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo bench offline", description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b", help=f"some of {', '.join(SHAPES)}, or a folder")
    parser.add_argument("--work", default=",".join(NAMES), help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--out", type=Path, default=Path("bench-offline"), help="folder for the results")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quantization", default="", help="fp8, or nothing")
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--log-level", default="INFO")
    return parser.parse_args()


def _measure_model(name: str, scratch: Path, options: argparse.Namespace, rows: list[Row]) -> None:
    folder = make_model_folder(scratch, name) if name in SHAPES else Path(name)
    config = json.loads((folder / "config.json").read_text())
    cost = model_cost(config, layer_bytes=1 if options.quantization else 2)
    label = " ".join(filter(None, (folder.name, options.quantization)))
    began = time.perf_counter()
    llm = LLM(
        str(folder),
        load_format="dummy",
        device=options.device,
        quantization=options.quantization,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        enforce_eager=options.enforce_eager,
        enable_prefix_caching=False,
        log_level=options.log_level,
    )
    with llm:
        _say(f"{name}: started in {time.perf_counter() - began:.1f} s")
        for work_name in options.work.split(","):
            row = _measure(llm, make_work(work_name), label, config["vocab_size"], cost)
            rows.append(row)
            _say(str(row))


def _measure(llm: LLM, work: Work, model: str, vocab_size: int, cost: ModelCost) -> Row:
    prompts = make_prompts(work, vocab_size)
    _generate(llm, prompts, [min(output, 16) for _, output in work.lengths])  # graphs of its sizes are there
    began = time.perf_counter()
    _generate(llm, prompts, [output for _, output in work.lengths])
    seconds = time.perf_counter() - began
    return Row(
        model=model,
        work=work.name,
        what=work.what,
        seconds=seconds,
        output_tokens_per_second=work.num_output_tokens / seconds,
        prompt_tokens_per_second=work.num_prompt_tokens / seconds,
        ms_per_token=seconds * 1e3 / max(output for _, output in work.lengths),
        bound_seconds=least_seconds(work, cost),
    )


def _generate(llm: LLM, prompts: list[list[int]], lengths: list[int]) -> None:
    params = [SamplingParams(max_tokens=length, ignore_eos=True, detokenize=False) for length in lengths]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for output, length in zip(outputs, lengths, strict=True):
        if len(output.outputs[0].token_ids) != length:
            raise RuntimeError(f"a request has {len(output.outputs[0].token_ids)} tokens, not {length}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
