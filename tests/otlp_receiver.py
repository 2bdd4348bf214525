"""An OTLP/HTTP receiver for JSON on a real socket, answering as the specification allows.

It keeps every post, and what it accepted of each. A post that it takes as bad is refused with 400
as a whole, as by a collector that cannot decode a message.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from msgspec import Struct


Json = dict[str, Any]


class Post(Struct, frozen=True):
    """One post, decoded."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Json

    @property
    def spans(self) -> list[Json]:
        return [
            span
            for resource in self.body.get("resourceSpans", [])
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class Reply(Struct, frozen=True, kw_only=True):
    """The reply to one post; by default, all of it was accepted."""

    status: int = 200
    body: bytes = b"{}"
    retry_after: str = ""
    coding: str = ""
    """The declared coding of its body."""
    drops: bool = False
    """The connection is closed without an answer."""


def partly(name: str, count: object, message: str) -> Reply:
    """A part of it was accepted; `name` is `rejectedSpans` or `rejectedDataPoints`."""
    said = {"partialSuccess": {name: count, "errorMessage": message}}
    return Reply(body=json.dumps(said).encode())


class OtlpReceiver:
    """An asynchronous context manager that listens on a free port of 127.0.0.1."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.posts: list[Post] = []
        self.replies: deque[Reply] = deque()
        """Replies to the next posts; after these, and without a bad span, the default."""
        self.is_bad: Callable[[Json], bool] = lambda _: False
        """Whether it cannot decode a span."""
        self.taken: list[Json] = []
        """The accepted spans."""
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        assert self._runner is not None
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/{path:.*}", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def next(self) -> Post:
        """The first post from now on."""
        count = len(self.posts)
        while len(self.posts) <= count:
            await asyncio.sleep(0.02)
        return self.posts[count]

    async def _take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        post = Post(request.path, headers, json.loads(await request.read()))
        self.posts.append(post)
        if self.replies:
            reply = self.replies.popleft()
        elif any(map(self.is_bad, post.spans)):
            reply = Reply(status=400, body=b'{"code":3,"message":"cannot decode"}')
        else:
            reply = Reply()
        if reply.drops:
            assert request.transport is not None
            request.transport.abort()
        elif reply.status == 200:
            self.taken += post.spans
        more = {"retry-after": reply.retry_after} if reply.retry_after else {}
        more |= {"content-encoding": reply.coding} if reply.coding else {}
        return web.Response(
            status=reply.status, body=reply.body, headers=more, content_type="application/json"
        )
