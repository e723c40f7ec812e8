"""`python -m octavo.worker_proc CONFIG`: the process of one device."""

import sys

from .process import main

sys.exit(main(sys.argv))
