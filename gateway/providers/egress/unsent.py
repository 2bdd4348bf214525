"""Counts bytes that were written to an upstream's connection and have not been delivered yet.

Over TLS an event loop calls bytes sent once it has encrypted them, whether anybody receives them or
not. What it then holds is queued behind what the kernel holds, and the kernel can be asked.
"""

import asyncio
import struct
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Final


_COUNT: Final = struct.Struct("i")


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """The number of these bytes; 0 if all were delivered. Over TLS it may be too low."""
    waiting = transport.get_write_buffer_size()
    if waiting or transport.get_extra_info("sslcontext") is None:
        return waiting
    try:
        held = ioctl(transport.get_extra_info("socket").fileno(), TIOCOUTQ, bytes(_COUNT.size))
    except (OSError, AttributeError):
        return 0  # It is closed already, or a system that does not tell.
    return int(_COUNT.unpack(held)[0])
