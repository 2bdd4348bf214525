"""What becomes of every request that a framework was seen to send, at every upstream, in one line.

The words are those of `round_trips/cells.py`: `same` where the upstream was asked what the
framework asks, and the framework hears what the upstream says; `reported` and `refused` where the
gateway says so; `other` where one of them got something else. Where caller and target speak one
dialect, `changed` names every field that did not arrive as it was sent.
`python -m tests.conformance.frameworks.replayed` writes what holds now to `replayed.txt`, which is
reviewed like code; `test_frameworks` compares.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from gateway.types import DialectName
from tests.conformance.frameworks import kept
from tests.conformance.frameworks.kept import Sent
from tests.conformance.put_together import Reader
from tests.conformance.round_trips import cells, heard
from tests.conformance.round_trips.asked import read
from tests.conformance.round_trips.said import SpeakingUpstreams
from tests.running_gateway import RunningGateway
from tests.upstreams import RecordedRequest


Json = dict[str, Any]

FILE = Path(__file__).with_name("replayed.txt")
SETTINGS = cells.SETTINGS
TARGETS = cells.TARGETS
PATHS: Mapping[DialectName, str] = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
OF_THE_GATEWAY = frozenset({"model", "store", "stream_options", "stream", "include"})
"""Fields that are the gateway's to say: which model, what is kept, and that usage is counted."""
CLIENTS_OWN = ("x-stainless", "user-agent", "x-api-key", "authorization", "cookie")
"""How names of headers begin that say something of a client."""

_DIGEST = re.compile("[0-9a-f]{32}")
"""What another vendor is told of an end user; each gateway has its own."""


class Replays:
    """Asks again what was recorded, at a gateway of today."""

    def __init__(self, url: str, key: str, upstreams: SpeakingUpstreams) -> None:
        self._client = httpx2.AsyncClient(base_url=url, timeout=30)
        self._key = key
        self._upstreams = upstreams
        self._reader = Reader()

    async def of(self, sent: Sent, target: str) -> str:
        """One line; raises AssertionError where what is sent is no request of its dialect."""
        assert sent.said is not None
        self._upstreams.say(sent.said)
        body = dict(sent.body) | {"model": target}
        answer = await self._answer(sent, body)
        if answer.status_code == 400:
            assert self._upstreams.calls == []
            return f"refused: {_reason(answer)}"
        assert answer.status_code == 200, (str(sent), target, answer.text)
        (call,) = self._upstreams.calls
        assert answer.headers["x-gatewright-target"] == target
        assert not self._tells_of_a_client(call, sent)
        told = self._heard(sent, body, answer)
        meant = heard.meant(sent.said, sent.caller)
        if "tokens" not in told and not _asks_for_usage(sent):
            meant.pop("tokens")
        asked, wanted = read(call.path, call.json), read(sent.path.partition("?")[0], body)
        if cap := answer.headers.get("x-gatewright-output-tokens-cap"):
            wanted["limit"] = int(cap)
        if _DIGEST.fullmatch(str(asked.get("user"))) and "user" in wanted:
            asked["user"] = "a digest"
        flaws = [f"asked {name}" for name in cells.different(asked, wanted)]
        flaws += [f"heard {name}" for name in cells.different(told, meant)]
        left_out = answer.headers.get("x-gatewright-dropped", "")
        lines = [f"reported {left_out}"] if left_out else []
        lines += [f"capped {cap}"] if cap else []
        lines += [f"other {flaw}" for flaw in flaws]
        if call.path == PATHS[sent.caller] and (changed := sorted(_changed(body, call.json))):
            lines.append(f"changed {', '.join(changed)}")
        return "; ".join(lines) or "same"

    async def ask(self, sent: Sent, target: str) -> httpx2.Response:
        """The gateway's answer, whatever it is."""
        return await self._answer(sent, dict(sent.body) | {"model": target})

    async def _answer(self, sent: Sent, body: Json) -> httpx2.Response:
        headers = dict(sent.headers) | {"authorization": f"Bearer {self._key}"}
        content = json.dumps(body).encode()
        return await self._client.post(sent.path, content=content, headers=headers)

    def _heard(self, sent: Sent, body: Json, answer: httpx2.Response) -> heard.Heard:
        """Read by the official clients' own code."""
        if body.get("stream"):
            assert answer.headers["content-type"].startswith("text/event-stream")
            made = self._reader.streamed(sent.caller, [answer.content])
        else:
            made = self._reader.whole(sent.caller, answer.content)
        if sent.caller == "anthropic_messages":
            return heard.of_message(Message.model_validate(made))
        if sent.caller == "openai_chat":
            return heard.of_chat(ChatCompletion.model_validate(made))
        return heard.of_response(Response.model_validate(made))

    def _tells_of_a_client(self, call: RecordedRequest, sent: Sent) -> bool:
        """Whether an upstream learns which program asked, or with which key."""
        return self._key in str(call.headers) or any(
            name.startswith(CLIENTS_OWN) and value in sent.headers.values()
            for name, value in call.headers.items()
        )

    async def close(self) -> None:
        await self._client.aclose()


def _asks_for_usage(sent: Sent) -> bool:
    """Chunks of a chat say nothing of tokens unless they are asked to."""
    is_stream = bool(sent.body.get("stream")) and sent.caller == "openai_chat"
    return not is_stream or bool((sent.body.get("stream_options") or {}).get("include_usage"))


def _changed(sent: Any, arrived: Any, at: str = "") -> Iterator[str]:
    """Where something of what was sent is missing or another; what was added is not asked for."""
    if isinstance(sent, dict) and isinstance(arrived, dict):
        for name, value in sent.items():
            if at or name not in OF_THE_GATEWAY:
                yield from _changed(value, arrived.get(name), f"{at}.{name}" if at else name)
    elif isinstance(sent, list) and isinstance(arrived, list) and len(sent) == len(arrived):
        for one, other in zip(sent, arrived, strict=True):
            yield from _changed(one, other, at)
    elif sent is not None and sent != arrived:
        yield at


def _reason(answer: httpx2.Response) -> str:
    return str(answer.json()["error"]["message"])


def all_sent() -> list[Sent]:
    """What asks for words, of every framework."""
    return [
        sent
        for framework in kept.frameworks()
        for sent in kept.sent_by(framework)
        if sent.said is not None
    ]


def way(sent: Sent, target: str) -> str:
    return f"{sent} → {target}"


def written() -> Mapping[str, str]:
    """What `replayed.txt` says, by way."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" | ", 1) for line in lines)


async def rewrite() -> None:
    """Write what holds now."""
    async with SpeakingUpstreams() as upstreams:
        with TemporaryDirectory() as name:
            folder = Path(name)
            url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
            async with RunningGateway(folder, url, upstreams, more=SETTINGS) as gateway:
                replays = Replays(gateway.url, await gateway.issue_key(), upstreams)
                lines = [
                    f"{way(sent, target)} | {await replays.of(sent, target)}\n"
                    for sent in all_sent()
                    for target in TARGETS
                ]
                await replays.close()
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(rewrite())
