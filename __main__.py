"""`python -m octavo`: the command line."""

import sys

from .frontend.cli.main import main

sys.exit(main())
