"""The engine's command line: `python -m local_engine serve | verify | check | pull | bench`."""

import signal
import sys
from importlib import import_module


_REFUSED = 2
_INTERRUPTED = 130
"""As shells say of what SIGINT ended."""
_SERVING = "local_engine.serve.command_line"
# Each of these is a program of its own: what they import, serving does without.
_PROGRAMS = {
    "bench": "local_engine.bench.report",
    "check": "local_engine.inspect_model",
    "pull": "local_engine.fetch",
    "train-demo": "local_engine.demo_model.train",
}


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    program = _PROGRAMS.get(arguments[0]) if arguments else None
    # Torch is imported for seconds, and takes an interruption for an import that failed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        run = import_module(program or _SERVING).main
    except ModuleNotFoundError as error:
        # The gateway is installed without torch, and answers by engines that run elsewhere.
        sys.stderr.write(f"the engine needs {error.name}, which is not installed here\n")
        return _REFUSED
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status: int = run(arguments[1:] if program else arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
