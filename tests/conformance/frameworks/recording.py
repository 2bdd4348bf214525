"""`python -m tests.conformance.frameworks.recording NAME PYTHON`: what a framework sends, anew.

Runs a program of `programs/` by the Python of an environment with its framework, before upstreams
that speak to it as its vendor does, and writes every request and what it was answered into
`recorded/NAME.jsonl`: the first line says which versions asked. Words that the framework adds of
its own are not kept, nor what its headers say about this machine.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from msgspec import to_builtins

from tests.conformance.contract import ROOT
from tests.conformance.frameworks import kept
from tests.conformance.frameworks.scripted import ScriptedVendor
from tests.upstreams import RecordedRequest


SURROUNDINGS = {
    "KEY": "k",
    "GPT": "gpt-5.4",
    "CLAUDE": "claude-opus-5-5",
    "OLD_CLAUDE": "claude-haiku-4-5",
    "EMBEDDER": "text-embedding-3-small",
    "PYTHONWARNINGS": "ignore",
}
RUN_S = 300
OF_NO_USE = frozenset(
    {
        *("host", "content-length", "connection", "accept-encoding", "user-agent", "cookie"),
        *("authorization", "x-api-key", "api-key", "x-client-request-id", "idempotency-key"),
    }
)
"""Names of headers that every client sends, or that differ from one machine or run to the next."""
TEXTS = frozenset({"content", "text", "instructions", "system", "description", "input", "output"})
OWN_MAX = 48
"""Letters of a text that may be anybody's."""


async def record(name: str, python: str) -> None:
    async with ScriptedVendor() as vendor:
        program = f"tests.conformance.frameworks.programs.{name}"
        surroundings = SURROUNDINGS | {"URL": vendor.url, "PATH": os.environ["PATH"]}
        surroundings |= {"HOME": os.environ.get("HOME", ""), "PYTHONPATH": str(ROOT)}

        def run() -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [python, "-m", program],
                cwd=ROOT,
                env=surroundings,
                stdout=subprocess.PIPE,
                timeout=RUN_S,
                check=True,
            )

        done = await to_thread.run_sync(run)
        versions = json.loads(done.stdout.splitlines()[-1])
        lines = [{"packages": versions}, *map(_line, vendor.calls, vendor.told)]
    kept.file_of(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _line(call: RecordedRequest, said: object) -> Mapping[str, Any]:
    shape, _, path = call.path.removeprefix("/").partition("/")
    headers = {
        name: value
        for name, value in sorted(call.headers.items())
        if name not in OF_NO_USE and not _is_of_a_machine(name)
    }
    body = _in_our_words(call.json, "")
    told = to_builtins(said)
    return {"shape": shape, "path": f"/{path}", "headers": headers, "body": body, "said": told}


def _is_of_a_machine(name: str) -> bool:
    return name.startswith("x-stainless-") and name not in {
        "x-stainless-retry-count",
        "x-stainless-helper-method",
        "x-stainless-stream-helper",
    }


def _in_our_words(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _in_our_words(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_our_words(inner, key) for inner in value]
    if not isinstance(value, str) or key not in TEXTS or len(value) <= OWN_MAX:
        return value
    if value in kept.OWN or value.startswith("data:"):
        return value
    return kept.ADDED_JSON if "json" in value.lower() else kept.ADDED


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
