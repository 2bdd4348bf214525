"""The GPU rows as a program: `python -m local_engine.bench.gpu --help`."""

import sys

from local_engine.bench.gpu.report import main


sys.exit(main(sys.argv[1:]))
