"""A certified OpenID provider on loopback: npm's `oidc-provider`, which `make clients` fetches."""

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec
import pytest

from tests.admin.listener import Browser


HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parents[1] / ".clients" / "node_modules"
NODE = shutil.which("node")
CLIENT, SECRET = "gatewright", "a client's secret of a test"
SAYS_WITHIN_S = 30.0
fetched = pytest.mark.skipif(
    NODE is None or not CLIENTS.joinpath("oidc-provider").exists(),
    reason="Node or npm's oidc-provider are not here: `make clients` fetches them",
)


class OpenIdProvider:
    """An asynchronous context manager: running while it is entered."""

    def __init__(self, folder: Path, base_url: str, *, names_sessions: bool = True) -> None:
        self._folder = folder
        self._base_url = base_url
        self._session = "yes" if names_sessions else "no"
        self._process: Process
        self.issuer = ""

    async def __aenter__(self) -> Self:
        shutil.copy(HERE / "openid_provider.mjs", self._folder)
        self._folder.joinpath("node_modules").symlink_to(CLIENTS)
        surroundings = {"BASE": self._base_url, "CLIENT": CLIENT, "SECRET": SECRET}
        self._process = await asyncio.create_subprocess_exec(
            str(NODE),
            "openid_provider.mjs",
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "SESSION": self._session, **surroundings},
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.issuer = (await self.said())["issuer"]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()

    async def said(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SAYS_WITHIN_S):
            while not (line := await self._process.stdout.readline()).startswith(b"{"):
                assert line, "the provider ended"
        found: dict[str, Any] = msgspec.json.decode(line)
        return found


class Visit:
    """What one browser does at the provider, whose cookies it keeps."""

    def __init__(self, session: aiohttp.ClientSession, provider: OpenIdProvider) -> None:
        self._session = session
        self._provider = provider

    async def sign_in(self, browser: Browser, name: str) -> int:
        """Through all of the provider's pages, and back; how the listener answers."""
        begun, _ = await browser.send("GET", "/sign-in/openid")
        url = begun.headers["location"]
        for _ in range(20):
            if not url.startswith(self._provider.issuer):
                back = urlsplit(url)
                answer, _ = await browser.send("GET", f"{back.path}?{back.query}")
                return answer.status
            url = await self._next(url, name)
        raise AssertionError("the provider leads nowhere")

    async def end(self, url: str) -> str:
        """Follow an address of a sign-out, and say yes; where the provider leads then."""
        async with self._session.get(url) as answer:
            page = await answer.text()
            assert answer.status == 200, page
        found = re.search(r'action="([^"]+)".*?name="xsrf" value="([^"]+)"', page, re.DOTALL)
        assert found is not None, page
        form = {"xsrf": found[2], "logout": "yes"}
        async with self._session.post(found[1], data=form, allow_redirects=False) as answer:
            return answer.headers["location"]

    async def _next(self, url: str, name: str) -> str:
        async with self._session.get(url, allow_redirects=False) as answer:
            if "location" in answer.headers:
                return urljoin(url, answer.headers["location"])
            page = await answer.text()
        found = re.search(r'action="([^"]+)" method="post"', page)
        prompt = re.search(r'name="prompt" value="([^"]+)"', page)
        assert found is not None, page
        assert prompt is not None, page
        form = {"prompt": prompt[1], "login": name, "password": "anything"}
        target = urljoin(url, found[1])
        async with self._session.post(target, data=form, allow_redirects=False) as answer:
            return urljoin(url, answer.headers["location"])
