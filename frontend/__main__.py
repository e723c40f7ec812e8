"""`python -m octavo.frontend CONFIG`: the process that speaks HTTP."""

import sys

from .http.process import main

sys.exit(main(sys.argv))
