"""Opens connections to PostgreSQL, directly or through a pooler.

A pooler such as PgBouncer may give each transaction another session of the server (decision 0087).
A statement that was prepared under a name is then missing, or is one that another worker prepared
under the same name: asyncpg numbers them, and every process counts from one. So behind a pooler no
statement has a name: each is sent with its text whenever it runs, in as many round trips as before.
A setting of the session would reach whoever gets the session next, so settings are made per
transaction.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy.engine import URL

from gateway.errors import ConfigurationInvalid


_IDLE_TRANSACTION_S = 10.0
"""When the machine of a worker is paused within a transaction, PostgreSQL ends it after this time,
so that it no longer holds locks. Less than a command may take, so that those waiting for the locks
get them."""
_IDLE: Final = "idle_in_transaction_session_timeout"
_COMMAND_S: Final = 30.0
_CONNECT_S: Final = 5.0
_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_SQLALCHEMYS: Final = frozenset(("host", "port", "prepared_statement_cache_size"))


def arguments(url: URL, *, pooled: bool) -> tuple[URL, dict[str, Any]]:
    """The address for SQLAlchemy, and the driver's arguments, including what a URL has after `?`.

    SQLAlchemy would pass that on as arguments, which `sslmode` and others are not. In an address of
    its own the driver accepts everything that PostgreSQL's programs do.

    Raises:
        ConfigurationInvalid: it names a file that cannot be read.
    """
    told: dict[str, Any] = {
        "timeout": _CONNECT_S,
        "command_timeout": _COMMAND_S if pooled else None,
        "async_creator_fn": Opening(is_limited=pooled),
    }
    said = {name: each if isinstance(each, str) else each[-1] for name, each in url.query.items()}
    own = {name: each for name, each in said.items() if name not in _SQLALCHEMYS}
    if "ssl" in own:
        own["sslmode"] = own.pop("ssl")  # The driver's own name for it.
    for name in _FILES:
        if name in own:
            _check_readable(name, own[name])
    if (limit_s := own.pop("connect_timeout", "")).isdecimal() and int(limit_s):
        told["timeout"] = float(limit_s)
    if own:
        told["dsn"] = f"postgresql://?{urlencode(own)}"
    kept = {name: each for name, each in url.query.items() if name in _SQLALCHEMYS}
    return url.set(query=kept), told


def _check_readable(name: str, file: str) -> None:
    try:
        Path(file).open("rb").close()
    except OSError as error:
        reason = f"{name}: {file} cannot be read: {error.strerror}"
        raise ConfigurationInvalid("database", "url", reason) from None


class Opening:
    """Opens the connections of one database; called like `asyncpg.connect`."""

    def __init__(self, *, is_limited: bool) -> None:
        """With `is_limited`, a client that is paused within a transaction loses it."""
        self._is_limited = is_limited
        self.is_pooled = False
        """Whether a pooler was seen; it is assumed to stay."""

    async def __call__(self, *where: Any, **options: Any) -> Any:
        is_nameless, more = self.is_pooled, {}
        if is_nameless:
            limited = {"connection_class": _limited()} if self._is_limited else {}
            more = {"statement_cache_size": 0, **limited}
        connection = await _connect(*where, **options, **more)
        try:
            if await self._begin(connection) or is_nameless:
                return connection
            self.is_pooled = True
            await connection.close()
        except BaseException:
            connection.terminate()
            raise
        return await self(*where, **options)

    async def _begin(self, connection: Any) -> bool:
        """Whether the server itself answers; if so, its session is given its settings.

        A pooler numbers sessions itself. It is asked without a prepared statement, and gets no
        parameters at the start: it may refuse those that it does not know. It may also have no free
        session until somebody gives up waiting.
        """
        told = f"set_config('{_IDLE}', '{_idle_ms()}', false)" if self._is_limited else "1"
        server = connection.get_server_pid()
        asking = f"SELECT {told} WHERE pg_backend_pid() = {server}"
        return bool(await connection.execute(asking, timeout=_CONNECT_S) == "SELECT 1")


async def _connect(*where: Any, **options: Any) -> Any:
    import asyncpg  # noqa: PLC0415 - a worker on SQLite need not carry it

    try:
        return await asyncpg.connect(*where, **options)
    except asyncpg.ClientConfigurationError as error:
        # It is a ValueError, like a value that no database can hold.
        raise asyncpg.InterfaceError(str(error)) from None


def _idle_ms() -> int:
    return round(_IDLE_TRANSACTION_S * 1000)


@cache
def _limited() -> Any:
    import asyncpg  # noqa: PLC0415

    class Limited(asyncpg.Connection):  # type: ignore[misc]
        """One whose transactions are told what a session would be, in the message that begins."""

        async def execute(self, query: str, *args: Any, **options: Any) -> str:
            if query.startswith("BEGIN"):
                query = f"{query} SET LOCAL {_IDLE} = {_idle_ms()}"
            return str(await super().execute(query, *args, **options))

    return Limited
