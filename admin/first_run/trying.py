"""Sends one question to the configured data plane, as an application would, and passes it on.

The address comes from the settings and nowhere else. The key comes from the page that has just
shown it, is used once, and is kept nowhere.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from admin.snippets import QUESTION, data_plane_url
from gateway.configuration.settings import Settings
from gateway.secrets.certificates import trusting
from gateway.secrets.secret import Secret


TIMEOUT: Final = aiohttp.ClientTimeout(total=120, connect=5)
ANSWER_LENGTH_MAX: Final = 64 * 1024
UNREACHABLE: Final = "The data plane does not answer at its address: is it running?"
ANSWERED: Final = 200
BROKEN: Final = "The answer was cut off."
_DATA: Final = b"data: "
_END: Final = b"[DONE]"


class Answer(Struct, frozen=True):
    """What the data plane says: its status and request id, and its words as they come."""

    status: int
    request_id: str
    words: AsyncIterator[str]


class _Choice(Struct):
    delta: dict[str, Any] = {}


class _Chunk(Struct):
    choices: list[_Choice] = []


async def ask(settings: Settings, key: Secret[str]) -> Answer:
    """One streamed question; whoever takes the answer reads its words to their end."""
    body = {
        "model": "auto",
        "stream": True,
        "messages": [{"role": "user", "content": QUESTION}],
    }
    url = f"{data_plane_url(settings)}/v1/chat/completions"
    headers = {"authorization": f"Bearer {key.reveal()}"}
    session = aiohttp.ClientSession(
        timeout=TIMEOUT, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
    )
    # At its own address the listener is known by its certificate, at a public one by its name.
    own = None if settings.data_plane_url else trusting(settings, "data_plane")
    try:
        reply = await session.post(
            url, json=body, headers=headers, allow_redirects=False, ssl=own or True
        )
    except (aiohttp.ClientError, TimeoutError, OSError):
        await session.close()
        return Answer(0, "", _said(UNREACHABLE))
    is_answered = reply.status == ANSWERED
    words = _words(reply) if is_answered else _refusal(reply)
    return Answer(reply.status, reply.headers.get("x-request-id", ""), _until_end(session, words))


async def _until_end(
    session: aiohttp.ClientSession, words: AsyncIterator[str]
) -> AsyncIterator[str]:
    """The words, and then nothing is left open; also where nobody waits for the end."""
    try:
        async for text in words:
            yield text
    finally:
        await session.close()


async def _words(reply: aiohttp.ClientResponse) -> AsyncIterator[str]:
    count = 0
    try:
        async for line in reply.content:
            for text in _texts(line):
                count += len(text)
                if count <= ANSWER_LENGTH_MAX:
                    yield text
    except (aiohttp.ClientError, TimeoutError, ValueError):
        yield f"\n{BROKEN}"


def _texts(line: bytes) -> list[str]:
    """The words in one line of the stream."""
    if not line.startswith(_DATA) or _END in line:
        return []
    try:
        chunk = msgspec.json.decode(line[len(_DATA) :], type=_Chunk)
    except msgspec.MsgspecError:
        return []
    return [str(choice.delta.get("content") or "") for choice in chunk.choices]


async def _refusal(reply: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Our own words for why it was refused: they hold no secret."""
    try:
        found = msgspec.json.decode(await reply.content.read(ANSWER_LENGTH_MAX))
        yield str(found["error"]["message"])
    except (aiohttp.ClientError, msgspec.MsgspecError, KeyError, TypeError):
        yield f"It was refused with status {reply.status}."


async def _said(text: str) -> AsyncIterator[str]:
    yield text
