"""`python -m tests.agents`: the tests of this folder, with no other network than loopback.

Agents look for news, report what they do and fetch what they lack. In a network namespace of their
own they reach the gateway and nothing else, and what they leave running ends with it.
"""

import fcntl
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest


HERE = Path(__file__).resolve().parent
ALONE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
INSIDE = "--inside"
REFUSED = """\
No namespaces can be made here, so nothing was started: agents run with loopback only.
`unshare {}` has to work: as root, or where unprivileged user namespaces are allowed
(sysctl kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns,
in a container the privilege SYS_ADMIN). What it said: {}
"""

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def main(arguments: list[str]) -> int:
    if arguments[:1] == [INSIDE]:
        bring_loopback_up()
        return int(pytest.main(["-p", "no:cacheprovider", *arguments[1:], str(HERE)]))
    try:
        tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
        said, may = tried.stderr.strip(), tried.returncode == 0
    except OSError as error:
        said, may = str(error), False
    if not may:
        sys.stderr.write(REFUSED.format(" ".join(ALONE[1:]), said))
        return 1
    command = [*ALONE, sys.executable, "-m", "tests.agents", INSIDE, *arguments]
    return subprocess.run(command, check=False).returncode


def bring_loopback_up() -> None:
    """A new network namespace has a loopback interface that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
