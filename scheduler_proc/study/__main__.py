"""`python -m octavo.scheduler_proc.study`: shipped traces under each order, in simulated time."""

import argparse
import sys
from pathlib import Path

from ...protocol.errors import OctavoError, UsageError
from ...protocol.step_cost import MODELS
from ..waiting.orders import NAMES
from .measure import ITL, TTFT, Summary, summarize
from .plots import draw_policies
from .simulate import Outcome, Simulation
from .traces import TRACES

# Requests a second at which each trace asks for about twice what the simulated device gives.
_RATES = {"bursty-chat": 60.0, "long-documents": 10.0, "agent-loops": 200.0, "two-tenants": 1.5}
_MORE_GREEDY = 20.0
_HEAD = "order      requests  good/s    TTFT p50     p99   ITL p50     p99   tokens  cached  fairness"


def main(argv: list[str]) -> int:
    """Print a table for each trace. The exit status is 0, or 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="octavo bench policy", description=__doc__, allow_abbrev=False)
    parser.add_argument("--trace", nargs="+", choices=TRACES, default=list(TRACES), metavar="NAME")
    parser.add_argument("--policy", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: twice the capacity")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a trace")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=MODELS, default="h200-8b", help="what the device costs")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--max-num-batched-tokens", type=int, default=1024)
    parser.add_argument("--target-ttft-ms", type=float, default=TTFT * 1e3)
    parser.add_argument("--target-itl-ms", type=float, default=0.0)
    parser.add_argument("--plots", type=Path, help="folder for pictures")
    arguments = parser.parse_args(argv[1:])
    sys.stdout.write(
        f"simulated {arguments.model}, {arguments.max_num_seqs} rows, "
        f"{arguments.max_num_batched_tokens} tokens a step; good: first token within {TTFT:g} s, "
        f"{ITL * 1e3:g} ms a token on average; times in ms\n"
    )
    try:
        for name in arguments.trace:
            _study(name, arguments)
    except OctavoError as error:
        sys.stderr.write(f"octavo: error: {error.message}\n")
        return UsageError.exit_status
    return 0


def _study(name: str, arguments: argparse.Namespace) -> None:
    rate = arguments.rate or _RATES[name]
    more = {"greedy": _MORE_GREEDY} if name == "two-tenants" else {}
    trace = TRACES[name](rate, arguments.seconds, arguments.seed, **more)
    sys.stdout.write(f"\n{name}: {len(trace)} requests in {arguments.seconds:g} s\n{_HEAD}\n")
    runs: dict[str, list[Outcome]] = {}
    for policy in arguments.policy:
        run = Simulation(
            trace,
            cost=MODELS[arguments.model],
            scheduling_policy=policy,
            max_num_seqs=arguments.max_num_seqs,
            max_num_batched_tokens=arguments.max_num_batched_tokens,
            target_ttft_ms=arguments.target_ttft_ms,
            target_itl_ms=arguments.target_itl_ms,
        ).run()
        runs[policy] = run.outcomes
        sys.stdout.write(_line(policy, summarize(run.outcomes, arguments.seconds)))
        users = sorted({outcome.arrival.user for outcome in run.outcomes})
        for user in users if len(users) > 1 else ():
            mine = [outcome for outcome in run.outcomes if outcome.arrival.user == user]
            sys.stdout.write(_line(f"  {user}", summarize(mine, arguments.seconds)))
        sys.stdout.flush()
    if arguments.plots:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        draw_policies(arguments.plots / f"{name}.png", runs, f"{name}, {rate:g} requests a second")


def _line(title: str, told: Summary) -> str:
    return (
        f"{title:10s} {told.requests:8d} {told.goodput:7.2f} {told.ttft_p50 * 1e3:11.1f} "
        f"{told.ttft_p99 * 1e3:7.0f} {told.itl_p50 * 1e3:9.2f} {told.itl_p99 * 1e3:7.2f} {told.tokens:8d} "
        f"{told.cached:7.0%} {told.fairness:9.2f}\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
