"""What a data plane must not carry: every import is time at start and memory in every worker."""

import subprocess
import sys
from pathlib import Path


UNUSED = {
    *("aiohttp", "alembic", "anthropic", "authlib", "boto3", "hvac", "httpx", "httpx2"),
    *("jinja2", "openai", "pydantic", "redis", "sklearn", "torch", "triton"),
}


def test_a_data_plane_is_built_without_what_it_does_not_use(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from gateway.cli.init import prepare
from gateway.configuration.reading import load_settings
asyncio.run(prepare(Path({str(tmp_path)!r})))
for name in [name for name in sys.modules if name.partition(".")[0] == "alembic"]:
    del sys.modules[name]  # making the database needs it, serving does not

from gateway.cli.serve import DataPlane
DataPlane(load_settings(Path({str(tmp_path)!r}, "gatewright.toml"))).application()
print(*sorted({UNUSED!r} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == []
