"""`gatewright demo`: engine, data plane and admin listener on this machine, and a key to try.

It supervises three processes; when one ends or a signal comes, all are stopped.
"""

import asyncio
import os
import signal
import sys
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import click

from gateway.cli.init import prepare
from gateway.cli.keys import opened_keys
from gateway.cli.options import Refused, asynchronous
from gateway.cli.setup import admin_address, setup_link
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.credentials import admin_token
from gateway.store.identity.keys import NewKey, Place


READY_WITHIN_S = 120.0
STOP_WITHIN_S = 10.0
MODEL = "gatewright-demo"
QUESTION = "What does a receipt prove?"


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("var/demo"),
    show_default=True,
    help="Where the demo keeps its configuration, keys and database.",
)
@asynchronous
async def demo(folder: Path) -> None:
    """Run everything here: no provider key and no database server needed."""
    if find_spec("local_engine") is None:
        raise Refused("the engine is not installed: pip install 'gatewright[engine]'")
    try:
        config_file = await prepare(folder)
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from error
    settings = load_settings(config_file)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    processes: list[asyncio.subprocess.Process] = []
    try:
        for arguments in _commands(settings, config_file):
            process = await asyncio.create_subprocess_exec(*arguments)
            processes += [process]
        waiting = [asyncio.ensure_future(process.wait()) for process in processes]
        stopping = asyncio.ensure_future(stopped.wait())
        ready = asyncio.ensure_future(_all_ready(settings))
        await asyncio.wait({*waiting, stopping, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not ready.exception():
            key = await _first_key(settings)
            link = await setup_link(settings)
            click.echo(_introduction(settings, config_file, key, link))
            await asyncio.wait({*waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*waiting, stopping, ready):
            task.cancel()
        if not stopped.is_set():
            raise Refused("a process ended; its last lines above say why")
    finally:
        await _stop(processes)


def _commands(settings: Settings, config_file: Path) -> list[list[str]]:
    weights = str(resources.files("local_engine").joinpath("demo_model", "weights"))
    engine_host, engine_port = _address(settings.providers["engine"].base_url)
    gatewright = [sys.executable, "-m", "gateway"]
    return [
        [
            *(sys.executable, "-m", "local_engine", "serve", "--model", weights),
            *("--served-name", MODEL, "--host", engine_host, "--port", engine_port),
        ],
        [*gatewright, "serve", "--config", str(config_file)],
        [*gatewright, "admin", "serve", "--no-setup-link", "--config", str(config_file)],
    ]


def _address(base_url: str) -> tuple[str, str]:
    host, _, port = base_url.partition("://")[2].partition(":")
    return host, port


async def _all_ready(settings: Settings) -> None:
    urls = [
        f"{settings.providers['engine'].base_url}/health/ready",
        f"{settings.data_plane.url}/health/ready",
        f"{settings.admin.url}/health/ready",
    ]
    async with asyncio.timeout(READY_WITHIN_S), aiohttp.ClientSession() as session:
        for url in urls:
            while not await _answers(session, url):
                await asyncio.sleep(0.1)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as reply:
            return reply.ok
    except aiohttp.ClientError:
        return False


async def _first_key(settings: Settings) -> str:
    """A fresh key, once the data plane knows it and has heard from the engine."""
    new = NewKey(Place("demo", "first-steps", "playground"), "made by gatewright demo", "demo")
    async with opened_keys(settings) as store:
        key = (await store.issue(new)).reveal()
    url = f"{settings.data_plane.url}/v1/models/{MODEL}"
    headers = {"x-api-key": key}
    async with asyncio.timeout(READY_WITHIN_S), aiohttp.ClientSession(headers=headers) as session:
        while not await _is_available(session, url):
            await asyncio.sleep(0.1)
    return key


async def _is_available(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as reply:
            return reply.ok and bool((await reply.json())["available"])
    except aiohttp.ClientError:
        return False


def _introduction(settings: Settings, config_file: Path, key: str, link: str) -> str:
    return INTRODUCTION.format(
        key=key,
        url=settings.data_plane.url,
        admin=admin_address(settings),
        begin=BEGIN.format(link=link) if link else "",
        token=admin_token(settings).reveal(),
        config=config_file,
        question=QUESTION,
        gatewright=os.path.relpath(Path(sys.executable).with_name("gatewright")),
        python=os.path.relpath(Path(sys.executable)),
    )


async def _stop(processes: list[asyncio.subprocess.Process]) -> None:
    for process in reversed(processes):
        if process.returncode is None:
            process.terminate()
    for process in processes:
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


BEGIN = """  set it up      {link}
                 (once, within an hour: makes the person who signs in)
"""
INTRODUCTION = """
Gatewright is running. Ctrl-C stops it.

  one endpoint   {url}
  your key       {key}
  admin          {admin}   (token: {token})
{begin}
--- Ask with curl; the headers say what served it, what it cost, and the receipt:

curl -i {url}/v1/chat/completions \\
  -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' \\
  -d '{{"model": "auto", "messages": [{{"role": "user", "content": "{question}"}}]}}'

--- Ask with the official SDKs, streaming:

{python} - <<'EOF'
from anthropic import Anthropic
from openai import OpenAI

messages = [{{"role": "user", "content": "{question}"}}]

gpt = OpenAI(base_url="{url}/v1", api_key="{key}")
for chunk in gpt.chat.completions.create(model="auto", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

claude = Anthropic(base_url="{url}", api_key="{key}")
with claude.messages.stream(model="auto", max_tokens=100, messages=messages) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    print()
    receipt = stream.response.headers["x-gatewright-receipt"]
print("receipt:", receipt)
EOF

--- Check the evidence, all of it or one receipt:

{gatewright} audit verify --config {config}
{gatewright} audit verify --config {config} --receipt RECEIPT
"""
