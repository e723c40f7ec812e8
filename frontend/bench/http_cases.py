"""Loads over HTTP by name, each a shape and the number of processes that send it."""

from dataclasses import dataclass, replace

from .load import Shape

_DRAWN_IN, _DRAWN_OUT = (512, 1024), (128, 256)


@dataclass(frozen=True)
class HttpCase:
    """A load, and how many processes send it."""

    shape: Shape
    processes: int


def _case(
    name: str,
    num_requests: int,
    concurrency: int,
    processes: int,
    *,
    prompt_len: tuple[int, int] = _DRAWN_IN,
    output_len: tuple[int, int] = _DRAWN_OUT,
    rate: float = 0.0,
) -> HttpCase:
    shape = Shape(
        name=name,
        num_requests=num_requests,
        concurrency=concurrency,
        prompt_len=prompt_len,
        output_len=output_len,
        rate=rate,
    )
    return HttpCase(shape, processes)


CASES = {
    case.shape.name: case
    for case in (
        _case("c1", 3, 1, 1, prompt_len=(128, 128), output_len=(256, 256)),
        _case("c64", 512, 64, 4),
        _case("c256", 1536, 256, 8),
        _case("rate20", 512, 512, 4, rate=20.0),
        _case("short", 1024, 256, 8, prompt_len=(16, 32), output_len=(256, 256)),
    )
}


def at_concurrency(concurrency: int) -> HttpCase:
    """The drawn lengths of c64 and c256, six requests for each that is open at once."""
    case = CASES["c64"]
    shape = replace(
        case.shape, name=f"at {concurrency}", num_requests=6 * concurrency, concurrency=concurrency
    )
    return HttpCase(shape, min(8, max(1, concurrency // 8)))
