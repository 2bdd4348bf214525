"""Clients in other languages and frameworks, which `make clients` fetches into `.clients`.

They run as programs of their own against a gateway on loopback. Skipped where they were not
fetched: nothing is downloaded by a test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import to_thread

from tests.conformance.contract import ROOT
from tests.conformance.test_official_clients import tool_answers
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

HERE = Path(__file__).resolve().parent
CLIENTS = ROOT / ".clients"
NODE = shutil.which("node")
PYTHON = CLIENTS / "python" / "bin" / "python"
HELLO = "Hello from the upstream."
TARGETS = (CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET)
SETTINGS = """
[inspection]
deadline_s = 5.0
[targets.embedder]
provider = "openai"
model = "text-embedding-3-small"
"""
fetched_npm = pytest.mark.skipif(
    NODE is None or not CLIENTS.joinpath("npm.stamp").exists(),
    reason="Node or the npm clients are not here: `make clients` fetches them",
)
fetched_python = pytest.mark.skipif(
    not CLIENTS.joinpath("python.stamp").exists(),
    reason="LangChain is not here: `make clients` fetches it",
)


async def told(
    command: list[str], folder: Path, gateway: RunningGateway, key: str, targets: tuple[str, ...]
) -> list[dict[str, Any]]:
    """What a client program printed, line by line."""
    surroundings = {
        "PATH": os.environ["PATH"],
        "URL": gateway.url,
        "KEY": key,
        "TARGETS": ",".join(targets),
        "AI_SDK_LOG_WARNINGS": "false",
    }

    def run() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command, cwd=folder, env=surroundings, capture_output=True, timeout=100, check=False
        )

    done = await to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return [msgspec.json.decode(line) for line in done.stdout.splitlines() if line[:1] == b"{"]


@fetched_npm
async def test_the_npm_clients_of_both_vendors_and_the_ai_package_work(
    gateway: RunningGateway, shared_key: str, tmp_path: Path
) -> None:
    shutil.copy(HERE / "clients.mjs", tmp_path)
    tmp_path.joinpath("node_modules").symlink_to(CLIENTS / "node_modules")

    lines = await told([str(NODE), "clients.mjs"], tmp_path, gateway, shared_key, TARGETS)

    wrong = [line for line in lines if line["said"] not in {HELLO, "counted"}]
    assert wrong == []
    assert len(lines) == 14 * len(TARGETS)


@fetched_npm
async def test_the_npm_clients_call_tools_and_get_objects(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, tmp_path: Path
) -> None:
    targets = (CLAUDE_TARGET, GPT_TARGET)
    for target, upstream in zip(targets, upstreams.managed, strict=True):
        rounds = [each for _ in range(4) for each in tool_answers(target)]
        upstream.answer_once(*rounds, Answer(text='{"name":"Old Bridge"}'))
    shutil.copy(HERE / "clients_tools.mjs", tmp_path)
    tmp_path.joinpath("node_modules").symlink_to(CLIENTS / "node_modules")

    lines = await told([str(NODE), "clients_tools.mjs"], tmp_path, gateway, shared_key, targets)

    wrong = [line for line in lines if (line["said"], line["saw"]) != ("It is 120.", "Old Bridge")]
    assert wrong == []
    assert len(lines) == 5 * len(targets)
    for upstream in upstreams.managed:
        assert sum(b"Old Bridge: 120" in call.body for call in upstream.calls) == 4


@fetched_python
async def test_langchains_clients_work(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, tmp_path: Path
) -> None:
    vectors = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    body = {"object": "list", "data": vectors, "model": "m", "usage": usage}
    targets = (CLAUDE_TARGET, GPT_TARGET)
    # The last call goes to embeddings; all before it are eight to a target.
    upstreams.openai.answer_once(*[Answer()] * 8, Answer(body=msgspec.json.encode(body)))

    lines = await told(
        [str(PYTHON), str(HERE / "langchain_clients.py")], tmp_path, gateway, shared_key, targets
    )

    *chats, embedded = lines
    assert [line for line in chats if line["said"] not in {HELLO, f"{HELLO} [7]"}] == []
    assert len(chats) == 8 * len(targets)
    assert embedded["said"] == "[0.5, -0.25]"


def test_the_programs_are_beside_this_file() -> None:
    assert HERE.joinpath("clients.mjs").exists()
    assert HERE.joinpath("clients_tools.mjs").exists()
    assert HERE.joinpath("langchain_clients.py").exists()
    assert sys.version_info >= (3, 11)
