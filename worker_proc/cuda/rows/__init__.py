"""Permanent rows in device memory.

A plan's changes to rows, the columns of its step and the token ids that the device does not know yet travel
in one copy; a kernel applies the changes, another builds the step's inputs from what the rows then hold.
"""

from .columns import RowColumns
from .intake import HostStep, Intake
from .staging import Staging

__all__ = ["HostStep", "Intake", "RowColumns", "Staging"]
