"""`docs/sampling.md` names every sampling parameter with the default and the range that the code has."""

import re
from pathlib import Path

import msgspec
import pytest

import octavo
from octavo import SamplingParams
from octavo.protocol.errors import InvalidRequestError

PAGE = (Path(octavo.__file__).parent / "docs" / "sampling.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]
FIELDS = {field.name: field for field in msgspec.structs.fields(SamplingParams)}
NUMBERS = {"none": None, "true": True, "false": False}


def test_every_field_has_a_row() -> None:
    assert [row[0].strip("`") for row in ROWS] == list(FIELDS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_default_is_that_of_the_code(row: list[str]) -> None:
    name, default = row[0].strip("`"), row[1]
    assert FIELDS[name].default == (NUMBERS[default] if default in NUMBERS else float(default))


BOUNDED = [row for row in ROWS if re.fullmatch(r"-?\d+ to -?\d+", row[2])]


def test_bounds_are_found() -> None:
    assert len(BOUNDED) >= 6


@pytest.mark.parametrize("row", BOUNDED, ids=lambda row: row[0])
def test_the_bounds_are_those_of_the_code(row: list[str]) -> None:
    name = row[0].strip("`")
    low, high = (type(FIELDS[name].default or 0)(bound) for bound in row[2].split(" to "))
    for allowed in (low, high):
        SamplingParams(**{name: allowed})
    for wrong in (low - 1, high + 1):
        with pytest.raises(InvalidRequestError, match=f"^{name} must be"):
            SamplingParams(**{name: wrong})
