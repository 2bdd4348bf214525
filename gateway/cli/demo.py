"""`gatewright demo`: engine, data plane and admin listener on this machine, and a key to try.

It supervises three processes; when one ends or a signal comes, all are stopped.
"""

import asyncio
import os
import signal
import socket
import ssl
import sys
from collections.abc import Coroutine
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import click

from gateway.cli.init import prepare
from gateway.cli.keys import opened_keys
from gateway.cli.options import Refused, asynchronous
from gateway.cli.setup import admin_address, setup_link
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.secrets.certificates import trusting
from gateway.secrets.credentials import admin_token
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
    _refuse_taken(settings, config_file)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name, arguments in _commands(settings, config_file).items():
            processes[name] = await asyncio.create_subprocess_exec(*arguments)
        await _supervise(processes, stopped, _introduce(settings, config_file))
    finally:
        await _stop([*processes.values()])


def _refuse_taken(settings: Settings, config_file: Path) -> None:
    """Refuse to start if something listens there already, which would be taken for ours."""
    engine = settings.providers.get("engine")
    try:
        engine_place = _address(engine.base_url) if engine is not None else None
    except ValueError:
        engine_place = None
    if engine_place is None:
        raise Refused(f"{config_file}: the demo needs providers.engine.base_url with a port")
    places = {
        "providers.engine.base_url": engine_place,
        "data_plane.port": (settings.data_plane.host, settings.data_plane.port),
        "admin.port": (settings.admin.host, settings.admin.port),
    }
    taken = [
        f"{key}: {host}:{port} cannot be listened on, {why}"
        for key, (host, port) in places.items()
        if (why := _why_taken(host, port))
    ]
    if taken:
        said = "; ".join(taken)
        raise Refused(f"{config_file}: {said}; stop what is there, or set another there")


def _why_taken(host: str, port: int) -> str:
    """Why nobody can listen there now; empty if it is possible."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return str(error.strerror).partition(" (")[0].lower()  # Python adds the address again.
    return ""


async def _supervise(
    processes: dict[str, asyncio.subprocess.Process],
    stopped: asyncio.Event,
    introduction: Coroutine[None, None, None],
) -> None:
    """Run until a signal comes; raises `Refused` if a process ends before it."""
    endings = {asyncio.ensure_future(each.wait()) for each in processes.values()}
    stopping = asyncio.ensure_future(stopped.wait())
    introducing = asyncio.ensure_future(introduction)
    try:
        await asyncio.wait({*endings, stopping, introducing}, return_when=asyncio.FIRST_COMPLETED)
        if introducing.done():
            introducing.result()
            await asyncio.wait({*endings, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*endings, stopping, introducing):
            task.cancel()
    if not stopped.is_set():
        name = next(name for name, each in processes.items() if each.returncode is not None)
        raise Refused(f"the {name} ended; its last lines above say why")


async def _introduce(settings: Settings, config_file: Path) -> None:
    """Say what to try, once everything answers."""
    try:
        await _all_ready(settings)
        key = await _first_key(settings)
    except TimeoutError:
        raise Refused(f"it was not ready within {READY_WITHIN_S:.0f} seconds") from None
    link = await setup_link(settings)
    click.echo(_introduction(settings, config_file, key, link))


def _commands(settings: Settings, config_file: Path) -> dict[str, list[str]]:
    weights = str(resources.files("local_engine").joinpath("demo_model", "weights"))
    engine_host, engine_port = _address(settings.providers["engine"].base_url)
    gatewright = [sys.executable, "-m", "gateway"]
    at = ("--config", str(config_file))
    return {
        "engine": [
            *(sys.executable, "-m", "local_engine", "serve", "--model", weights),
            *("--served-name", MODEL, "--host", engine_host, "--port", str(engine_port)),
        ],
        "data plane": [*gatewright, "serve", *at],
        "admin listener": [*gatewright, "admin", "serve", "--no-setup-link", *at],
    }


def _address(base_url: str) -> tuple[str, int]:
    """Host and port of an address; raises `ValueError` if it names none."""
    parts = urlsplit(base_url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(base_url)
    return parts.hostname, parts.port


async def _all_ready(settings: Settings) -> None:
    parts = {
        settings.providers["engine"].base_url: None,
        settings.data_plane.url: trusting(settings, "data_plane"),
        settings.admin.url: trusting(settings, "admin"),
    }
    async with asyncio.timeout(READY_WITHIN_S), aiohttp.ClientSession() as session:
        for url, tls in parts.items():
            while not await _answers(session, f"{url}/health/ready", tls):
                await asyncio.sleep(0.1)


async def _answers(session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext | None) -> bool:
    try:
        async with session.get(url, ssl=tls or True) as reply:
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
    connector = aiohttp.TCPConnector(ssl=trusting(settings, "data_plane") or True)
    async with (
        asyncio.timeout(READY_WITHIN_S),
        aiohttp.ClientSession(headers=headers, connector=connector) as session,
    ):
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
