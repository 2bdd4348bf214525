"""Error envelopes as both vendors' clients expect them, and callers who check every part."""

import re
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any, Literal

import aiohttp
import msgspec
from msgspec import Struct

from gateway.audit.projecting.export import segment_rows
from gateway.types import AuditRecord
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams


Style = Literal["openai", "anthropic"]
STYLES: tuple[Style, ...] = ("openai", "anthropic")
PATHS: Mapping[Style, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
DIALECTS: Mapping[Style, str] = {"openai": "openai_chat", "anthropic": "anthropic_messages"}
TERMINALS: Mapping[Style, bytes] = {"openai": b"[DONE]", "anthropic": b"message_stop"}

SHAPES: Mapping[str, Mapping[Style, tuple[int, str]]] = {
    "invalid_request": {
        "openai": (400, "invalid_request_error"),
        "anthropic": (400, "invalid_request_error"),
    },
    "unsupported_parameter": {
        "openai": (400, "invalid_request_error"),
        "anthropic": (400, "invalid_request_error"),
    },
    "unsupported_encoding": {
        "openai": (415, "invalid_request_error"),
        "anthropic": (415, "invalid_request_error"),
    },
    "context_length_exceeded": {
        "openai": (400, "invalid_request_error"),
        "anthropic": (400, "invalid_request_error"),
    },
    "invalid_api_key": {
        "openai": (401, "invalid_request_error"),
        "anthropic": (401, "authentication_error"),
    },
    "no_permitted_target": {
        "openai": (403, "permission_error"),
        "anthropic": (403, "permission_error"),
    },
    "model_not_found": {
        "openai": (404, "invalid_request_error"),
        "anthropic": (404, "not_found_error"),
    },
    "method_not_allowed": {
        "openai": (405, "invalid_request_error"),
        "anthropic": (405, "invalid_request_error"),
    },
    "request_too_large": {
        "openai": (413, "invalid_request_error"),
        "anthropic": (413, "request_too_large"),
    },
    "insufficient_quota": {
        "openai": (429, "insufficient_quota"),
        "anthropic": (402, "billing_error"),
    },
    "rate_limited": {"openai": (429, "rate_limit_error"), "anthropic": (429, "rate_limit_error")},
    "internal_error": {"openai": (500, "server_error"), "anthropic": (500, "api_error")},
    "no_target_available": {
        "openai": (503, "server_error"),
        "anthropic": (529, "overloaded_error"),
    },
    "unavailable": {"openai": (503, "server_error"), "anthropic": (529, "overloaded_error")},
    "audit_unavailable": {
        "openai": (503, "server_error"),
        "anthropic": (529, "overloaded_error"),
    },
    "upstream_unpaid": {"openai": (503, "server_error"), "anthropic": (503, "api_error")},
    "upstream_malformed": {"openai": (502, "server_error"), "anthropic": (502, "api_error")},
    "upstream_timeout": {"openai": (504, "server_error"), "anthropic": (504, "timeout_error")},
    "stream_broken": {"openai": (502, "server_error"), "anthropic": (502, "api_error")},
}
"""Status and type of each of our codes, in the words of each vendor."""

LEAK = re.compile(
    r"""/(?:work|tmp|usr|home|var|opt|proc|etc)/ | 127\.0\.0\.1 | localhost | ::1
    | https?:// | \bTraceback\b | \bFile\s" | 0x[0-9a-f]{6,} | \.py\b | \.toml\b
    | \b(?:SELECT|INSERT|UPDATE|DELETE)\s | \bsql | aiohttp | msgspec | uvicorn | litestar
    | httptools | asyncpg | gateway\.[a-z]
    | \b[A-Z][A-Za-z]+(?:Error|Exception|Failed|Refused|Invalid)\b
    | \bNoneType\b | \bobject\sat\b | <class""",
    re.VERBOSE,
)
"""What would tell a stranger how we are built or where we are."""


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    is_cut: bool = False
    """Whether the body broke off instead of ending."""

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def tree(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])


def ask(style: Style, *, stream: bool = False, **fields: object) -> dict[str, object]:
    """A good request's body, changed by `fields`."""
    body: dict[str, object] = {
        "model": ENGINE_TARGET,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Good morning"}],
    }
    if stream:
        body["stream"] = True
    return body | fields


class Caller:
    """Sends raw requests with one key."""

    def __init__(self, gateway: RunningGateway, http: aiohttp.ClientSession, key: str) -> None:
        self.gateway, self._http, self.key = gateway, http, key

    def with_key(self, key: str) -> "Caller":
        return Caller(self.gateway, self._http, key)

    def headers(self, style: Style) -> dict[str, str]:
        if style == "openai":
            return {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        return {"x-api-key": self.key, "content-type": "application/json"}

    async def post(
        self,
        style: Style,
        body: bytes | AsyncIterable[bytes] | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
        on_first: Callable[[], None] = lambda: None,
    ) -> Reply:
        """Send a body, whatever it is; `headers` replace all of ours where they are given.

        `on_first` is called when the first piece of the reply's body is here.
        """
        data = msgspec.json.encode(body) if isinstance(body, Mapping) else body
        sent = self.headers(style) if headers is None else headers
        url = self.gateway.url + PATHS[style]
        async with self._http.post(url, data=data, headers=sent) as response:
            known = {name.lower(): value for name, value in response.headers.items()}
            first = await response.content.readany()
            on_first()
            rest, is_cut = await read_to_end(response)
            return Reply(response.status, known, first + rest, is_cut)

    async def refused(
        self,
        style: Style,
        body: bytes | AsyncIterable[bytes] | Mapping[str, object],
        code: str,
        headers: Mapping[str, str] | None = None,
    ) -> AuditRecord:
        """Send, and check that it is refused with `code` as it must be; its outcome."""
        reply = await self.post(style, body, headers)
        check_error(reply, style, code)
        assert self.key not in reply.body.decode()
        outcome = await only_outcome(self.gateway, reply.request_id, "refused", code)
        if outcome.key_id:
            await check_evidence(self.gateway, reply, outcome)
        else:
            assert not any(name.startswith("x-gatewright-") for name in reply.headers)
        return outcome


async def read_to_end(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """What is left of a body, and whether it was cut: a broken chat stream is not ended."""
    pieces = []
    try:
        while piece := await response.content.readany():
            pieces.append(piece)
    except aiohttp.ClientPayloadError:
        # It does not give out what came together with the break.
        return b"".join([*pieces, *response.content._buffer]), True
    return b"".join(pieces), False


def check_envelope(reply: Reply, style: Style) -> Mapping[str, Any]:
    """The inner error of a reply that has the vendor's shape and tells nothing of ours."""
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.request_id.startswith("req_")
    text = reply.body.decode()
    assert LEAK.search(text) is None, text
    assert LEAK.search(str({**reply.headers, "date": ""})) is None
    tree = reply.tree
    error: dict[str, Any] = tree["error"]
    assert error["message"]
    if style == "openai":
        assert tree.keys() == {"error"}
        assert error.keys() == {"message", "type", "param", "code"}
    else:
        assert tree["type"] == "error"
        assert tree["request_id"] == reply.request_id
    return error


def check_error(reply: Reply, style: Style, code: str) -> None:
    """One of our own errors, in the caller's words."""
    error = check_envelope(reply, style)
    status, kind = SHAPES[code][style]
    assert (reply.status, error["type"]) == (status, kind), reply
    if style == "openai":
        assert error["code"] == code


async def only_outcome(
    gateway: RunningGateway, request_id: str, status: str, code: str
) -> AuditRecord:
    """The one outcome of a request; a refused one has no intent."""
    records = await gateway.records(request_id)
    outcomes = [record for record in records if record.stage == "outcome"]
    assert [(record.status, record.error) for record in outcomes] == [(status, code)]
    intents = [record for record in records if record.stage == "intent"]
    assert len(intents) == (0 if status == "refused" else 1)
    return outcomes[0]


async def check_evidence(gateway: RunningGateway, reply: Reply, outcome: AuditRecord) -> None:
    """An error names its decision, its record and its cost, as an answer does."""
    rows = [row.projected async for row in segment_rows(gateway.audit_folder)]
    places = [row for row in rows if row.record == outcome]
    assert len(places) == 1
    place = f"{places[0].worker}.{places[0].segment}.{places[0].offset_bytes}."
    assert reply.headers["x-gatewright-receipt"].startswith(place)
    assert reply.headers.get("x-gatewright-decision", "") == outcome.decision
    if outcome.status == "failed":
        assert reply.headers["x-gatewright-cost-microusd"] == str(outcome.cost_microusd)


def untouched(upstreams: Upstreams) -> bool:
    """Whether no model call has reached any upstream."""
    return not any(upstream.calls for upstream in (upstreams.engine, *upstreams.managed))
