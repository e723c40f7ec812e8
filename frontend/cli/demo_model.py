"""Fetch and convert the demo model if that has not been done, and print its folder."""

import argparse
import sys

from ...protocol.errors import ModelError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(arguments: argparse.Namespace) -> int:
    """Print the folder. Raises ModelError when the model cannot be had."""
    from ..demo import DemoModelError, ensure_demo_model

    try:
        folder = ensure_demo_model()
    except DemoModelError as error:
        raise ModelError(str(error)) from error
    sys.stdout.write(f"{folder}\n")
    return 0
