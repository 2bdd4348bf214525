"""Free ports for servers that tests start as processes, and that cannot report their own port."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Below the ports that the system assigns by itself; otherwise one may be taken before use."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")
