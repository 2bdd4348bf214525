"""Agents that `make agents` fetches, set up as docs/clients.md says, started without a user."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / ".clients" / "agents" / "node_modules" / ".bin"
KEY = "GATEWRIGHT_KEY"
RUN_S = 150
"""More than an agent takes on a busy machine; then it is ended, and its test fails."""
_URL = "http://127.0.0.1:8080"
_EXPORTED = re.compile(r"(\w+)=(\S+)")


class Place(Struct, frozen=True):
    """Where an agent finds its gateway, and itself."""

    home: Path
    url: str
    key: str
    target: str


class Agent(Struct, frozen=True):
    command: tuple[str, ...]
    """All but the task."""
    prepare: Callable[[Place], Mapping[str, str]]
    """Writes what the agent reads, and gives what its environment holds besides."""


class Ended(Struct, frozen=True):
    status: int
    printed: str
    complained: str


def documented(kind: str) -> str:
    """The one block of this kind under "Coding agents" in docs/clients.md."""
    page = ROOT.joinpath("docs", "clients.md").read_text(encoding="utf-8")
    section = page.partition("\n## Coding agents\n")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(block)


def _claude(place: Place) -> Mapping[str, str]:
    block = documented("sh").replace(_URL, place.url)
    told = dict(_EXPORTED.findall(block))
    assert set(told.values()) == {place.url, "gw_live_…", "auto"}
    return {
        name: place.key if value == "gw_live_…" else value.replace("auto", place.target)
        for name, value in told.items()
    }


def _codex(place: Place) -> Mapping[str, str]:
    block = documented("toml agent").replace(_URL, place.url)
    block = re.sub('^model = ".*"$', f'model = "{place.target}"', block, flags=re.MULTILINE)
    folder = place.home / ".codex"
    folder.mkdir()
    # Else it asks for searches in every turn: see docs/clients.md.
    folder.joinpath("config.toml").write_text('web_search = "disabled"\n' + block)
    return {KEY: place.key}


def _opencode(package: str) -> Callable[[Place], Mapping[str, str]]:
    def prepare(place: Place) -> Mapping[str, str]:
        told: dict[str, Any] = json.loads(documented("json").replace(_URL, place.url))
        told["provider"]["gatewright"] |= {
            "npm": package,
            "models": {"auto": {"name": "auto", "id": place.target}},
        }
        place.home.joinpath("opencode.json").write_text(json.dumps(told))
        return {KEY: place.key, "OPENCODE_CONFIG": str(place.home / "opencode.json")}

    return prepare


_OPENCODE = ("opencode", "run", "--model", "gatewright/auto")
AGENTS: Mapping[str, Agent] = {
    "Claude Code": Agent(("claude", "--print", "--allowedTools", "Read", "--"), _claude),
    "Codex": Agent(("codex", "exec", "--skip-git-repo-check"), _codex),
    **{
        f"opencode with {package}": Agent(_OPENCODE, _opencode(package))
        for package in ("@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic")
    },
}


async def ran(agent: Agent, place: Place, folder: Path, task: str) -> Ended:
    """What an agent printed about a task in a folder; nothing that it started is left."""
    surroundings = {
        "PATH": os.environ["PATH"],
        "HOME": str(place.home),
        "TMPDIR": str(place.home),
        "LANG": "C.UTF-8",
        **agent.prepare(place),
    }
    program, *arguments = agent.command
    running = await asyncio.create_subprocess_exec(
        str(PROGRAMS / program),
        *arguments,
        task,
        cwd=folder,
        env=surroundings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, complained = await asyncio.wait_for(running.communicate(), RUN_S)
    finally:
        stop_all_of(running.pid)
        await running.wait()
    assert running.returncode is not None
    return Ended(running.returncode, printed.decode(), complained.decode())


def stop_all_of(session: int) -> None:
    """End what still belongs to a session: an agent may leave servers of its own behind."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _session_of(entry) == session:
            os.kill(int(entry.name), signal.SIGKILL)


def _session_of(process: Path) -> int:
    try:
        return int(process.joinpath("stat").read_text().rpartition(")")[2].split()[3])
    except (FileNotFoundError, ProcessLookupError):
        return 0
