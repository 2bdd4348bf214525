"""What a data plane must not carry: every import is time at start and memory in every worker."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.init import prepare


UNUSED = {
    *("aiohttp", "alembic", "anthropic", "argon2", "asyncpg", "authlib", "boto3", "hvac"),
    *("httpx", "httpx2", "jinja2", "openai", "pydantic", "redis", "rich", "sklearn"),
    *("sqlalchemy.dialects.postgresql", "sqlalchemy.orm", "torch", "triton"),
}


@pytest.mark.anyio
async def test_a_data_plane_is_built_without_what_it_does_not_use(tmp_path: Path) -> None:
    await prepare(tmp_path)  # Making the database needs more than serving does.
    program = f"""
import sys
from pathlib import Path
from gateway.cli.serve import DataPlane
from gateway.configuration.reading import load_settings
DataPlane(load_settings(Path({str(tmp_path)!r}, "gatewright.toml"))).application()
print(*sorted({UNUSED!r} & set(sys.modules)))
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.split() == []


def test_who_asks_for_a_session_of_sqlalchemy_gets_a_whole_one() -> None:
    program = """
import sys
import gateway
from sqlalchemy.ext import asyncio as package
assert "sqlalchemy.orm" not in sys.modules
assert package.create_async_engine.__module__ == "sqlalchemy.ext.asyncio.engine"
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio.session import AsyncSession as its_own
from sqlalchemy.orm import DeclarativeBase
assert AsyncSession is its_own is package.AsyncSession
assert issubclass(async_sessionmaker().class_, AsyncSession)
print(hasattr(package, "nothing"), async_scoped_session.__module__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["False", "sqlalchemy.ext.asyncio.scoping"]
