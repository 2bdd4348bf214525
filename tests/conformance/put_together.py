"""Answers as the official SDKs show them: a stream as their own helpers put it together.

Bytes arrive over a transport of the SDKs' HTTP client, cut exactly where a test wants them cut: a
socket would join some of the pieces.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import anthropic
import httpx2
import openai

from gateway.types import DialectName


Json = dict[str, Any]

MODEL = "m"
TURNS: list[Any] = [{"role": "user", "content": "Hi"}]


class _Cut(httpx2.SyncByteStream):
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


class _Served(httpx2.BaseTransport):
    """Answers every request with the same pieces, until it is told others."""

    def __init__(self) -> None:
        self.content_type = ""
        self.pieces: Sequence[bytes] = ()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": self.content_type}
        return httpx2.Response(200, headers=headers, stream=_Cut(self.pieces), request=request)


class Reader:
    """The official clients, at whatever bytes a test has."""

    def __init__(self) -> None:
        self._served = _Served()
        http = httpx2.Client(transport=self._served)
        self._openai = openai.OpenAI(
            api_key="k", base_url="http://127.0.0.1/v1", max_retries=0, http_client=http
        )
        self._anthropic = anthropic.Anthropic(
            api_key="k", base_url="http://127.0.0.1", max_retries=0, http_client=http
        )

    def whole(self, dialect: DialectName, body: bytes) -> Json:
        """What a plain call returns."""
        self._served.content_type, self._served.pieces = "application/json", [body]
        made: Any
        if dialect == "anthropic_messages":
            made = self._anthropic.messages.create(model=MODEL, messages=TURNS, max_tokens=9)
        elif dialect == "openai_chat":
            made = self._openai.chat.completions.create(model=MODEL, messages=TURNS)
        else:
            made = self._openai.responses.create(model=MODEL, input="Hi")
        return dict(made.to_dict(mode="json"))

    def streamed(self, dialect: DialectName, pieces: Sequence[bytes]) -> Json:
        """What a stream has become once it is over; raises what the SDK raises."""
        self._served.content_type, self._served.pieces = "text/event-stream", pieces
        if dialect == "anthropic_messages":
            asked = self._anthropic.messages.stream(model=MODEL, messages=TURNS, max_tokens=9)
            with asked as message:
                return dict(message.get_final_message().to_dict(mode="json"))
        if dialect == "openai_chat":
            with self._openai.chat.completions.stream(model=MODEL, messages=TURNS) as chunks:
                chunks.until_done()
                # Asked for the final one it raises where an answer was cut at its limit.
                return dict(chunks.current_completion_snapshot.to_dict(mode="json"))
        with self._openai.responses.stream(model=MODEL, input="Hi") as events:
            return _last_response(events)


def _last_response(events: Any) -> Json:
    """Of an incomplete answer, too, of which the SDK's own helper says that there is none."""
    last: Json = {}
    for each in events:
        if each.type in {"response.completed", "response.incomplete"}:
            last = each.response.to_dict(mode="json")
        elif each.type in {"response.failed", "error"}:
            raise openai.OpenAIError(each.type)
    return last
