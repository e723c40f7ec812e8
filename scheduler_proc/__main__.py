"""`python -m octavo.scheduler_proc CONFIG`: the process that decides what every step computes."""

import sys

from .process import main

sys.exit(main(sys.argv))
