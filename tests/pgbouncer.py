"""A real PgBouncer for one test, on loopback, in front of the tests' PostgreSQL.

It needs `pgbouncer` on the path; continuous integration installs one and says so
(`GATEWRIGHT_TEST_SERVERS`), so that tests that need it cannot be skipped there.
"""

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy.engine import make_url

from tests.free_ports import free_port


_PROGRAM = shutil.which("pgbouncer")
NEEDED: Final = pytest.mark.skipif(
    not _PROGRAM and "GATEWRIGHT_TEST_SERVERS" not in os.environ, reason="no pgbouncer"
)
_CONFIG: Final = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""


class PgBouncer:
    """Before the server of a URL; every database of that server is reached through it."""

    def __init__(self, folder: Path, server_url: str, mode: str) -> None:
        self.port = free_port()
        url = make_url(server_url)
        self._socket = str(url.query.get("host", ""))
        self._file = folder / "pgbouncer.ini"
        self._file.write_text(
            _CONFIG.format(
                host=self._socket or url.host,
                port=url.port or 5432,
                user=url.username,
                password=f" password='{url.password}'" if url.password else "",
                listens=self.port,
                mode=mode,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, direct: str) -> str:
        """The URL of the same database through it."""
        through = make_url(direct).set(host="127.0.0.1", port=self.port, query={})
        return through.render_as_string(hide_password=False)

    def tell(self, settings: str) -> None:
        """Add settings; the last one of a name counts, from the next start on."""
        with self._file.open("a") as config:
            config.write(settings)

    def start(self) -> None:
        assert _PROGRAM
        # It refuses to run as root; whose the server's socket is may reach it.
        owner = Path(self._socket).stat().st_uid if self._socket else 65534
        user = owner if os.geteuid() == 0 else None
        with self._file.open() as config:
            self._process = subprocess.Popen(
                [_PROGRAM, "-q", "/dev/stdin"], stdin=config, user=user, cwd="/"
            )
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._process.poll() is None
            time.sleep(0.01)

    def stop(self) -> None:
        """At once: every connection through it is cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
