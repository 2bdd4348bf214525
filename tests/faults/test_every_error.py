"""Each row of the table of errors in docs/api.md, as callers get it, in each dialect's envelope."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from gateway import errors
from gateway.clock import SystemClock
from gateway.errors import GatewrightError
from gateway.money.budgets import Limit
from gateway.money.rates import RateLimit
from gateway.projects import Project
from gateway.rollout.versions import INSTALLATION
from gateway.snapshot import STALE_AFTER_S
from gateway.store.engine import open_database
from gateway.store.identity.keys import Place
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.policies.documents import PolicyStore
from tests.faults.envelopes import LEAK, Reply, read_to_end
from tests.faults.test_audit_faults import audit_folder_gone, until_ready
from tests.policies.worlds import document
from tests.running_gateway import ENGINE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SETTINGS = """
[limits]
first_byte_s = 0.5
stream_idle_s = 0.5
body_bytes_max = 400_000
concurrent_requests_max = 4
[providers.unset]
kind = "openai"
jurisdiction = "us"
credential = { env = "GATEWRIGHT_TEST_NOBODY_SETS_THIS" }
[providers.down]
kind = "engine"
base_url = "http://127.0.0.1:1"
jurisdiction = "in-house"
[providers.house]
kind = "pool"
members = ["down"]
jurisdiction = "in-house"
[targets.pooled]
provider = "house"
model = "fake-model"
catalogue = "in-house"
[targets.pooled-vectors]
provider = "house"
model = "bge-m3"
catalogue = "in-house-embeddings"
[targets.unset-model]
provider = "unset"
model = "gpt-6.2-sol"
[targets.unset-vectors]
provider = "unset"
model = "text-embedding-3-small"
[targets.vectors]
provider = "openai"
model = "text-embedding-3-small"
"""
TABLE = Path(__file__).parents[2] / "docs" / "api.md"
ROW = re.compile(r"^\| `(\w+)` \| (\d{3}) `(\w+)` \| (\d{3}) `(\w+)` \| (.*) \|$", re.MULTILINE)
ELSEWHERE = re.compile(r"^in (?:the admin API|records)")
"""How the last cell begins of what no caller of the data plane is told."""

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
}
MODELS = {"embeddings": "vectors"}
_numbers = iter(range(10**6))


def table() -> dict[str, tuple[tuple[int, str], tuple[int, str], str]]:
    """Per code: status and type for OpenAI's clients and for Anthropic's, and what happened."""
    return {
        code: ((int(first), kind), (int(second), other), text)
        for code, first, kind, second, other, text in ROW.findall(TABLE.read_text())
    }


def crash(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("at /etc/passwd in SELECT secret FROM nowhere")


class Ground(Struct):
    """One caller at one endpoint, and what may be done to make its request fail."""

    gateway: RunningGateway
    upstreams: Upstreams
    http: aiohttp.ClientSession
    key: str
    endpoint: str
    patches: pytest.MonkeyPatch
    undo: ExitStack

    @property
    def model(self) -> str:
        return MODELS.get(self.endpoint, GPT_TARGET)

    def body(self, text: str = "Good morning", **fields: object) -> dict[str, object]:
        turns = [{"role": "user", "content": text}]
        own: Mapping[str, dict[str, object]] = {
            "chat": {"messages": turns, "max_tokens": 50},
            "responses": {"input": text, "max_output_tokens": 50},
            "messages": {"messages": turns, "max_tokens": 50},
            "embeddings": {"input": text},
        }
        return {"model": self.model, **own[self.endpoint], **fields}

    async def post(self, text: str = "Good morning", key: str = "", **fields: object) -> Reply:
        return await self.send(msgspec.json.encode(self.body(text, **fields)), key=key)

    async def send(
        self,
        body: bytes = b"",
        *,
        key: str = "",
        method: str = "POST",
        path: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        name = "x-api-key" if self.endpoint == "messages" else "authorization"
        said = key or self.key
        own = {name: said if name == "x-api-key" else f"Bearer {said}"}
        if self.endpoint == "messages":
            own["anthropic-version"] = "2023-06-01"
        url = self.gateway.url + (path or PATHS[self.endpoint])
        async with self.http.request(
            method, url, data=body, headers={**own, **(headers or {})}
        ) as got:
            known = {name.lower(): value for name, value in got.headers.items()}
            raw, is_cut = await read_to_end(got)
            return Reply(got.status, known, raw, is_cut)

    async def key_of(self, project: str) -> str:
        return await self.gateway.issue_key(Place("acme", "research", project))

    def upstream(self, answer: Answer) -> None:
        self.upstreams.openai.answer(answer)


Make = Callable[[Ground], Awaitable[Reply]]


class Case(Struct, frozen=True):
    """How a code comes about, and what is on record of it."""

    make: Make
    outcome: str = "refused"
    """Status of its one outcome; empty where no request came about that could have one."""
    waits: bool = False
    """Whether `retry-after` says for how long."""
    endpoints: tuple[str, ...] = tuple(PATHS)
    in_stream: bool = False
    """Whether it is an event of a stream that had begun with a 200."""


async def too_large(ground: Ground) -> Reply:
    return await ground.post("x" * 500_000)


async def compressed(ground: Ground) -> Reply:
    return await ground.send(b"x", headers={"content-encoding": "br"})


async def nothing_there(ground: Ground) -> Reply:
    return await ground.send(path=PATHS[ground.endpoint] + "/nothing/here")


async def wrong_method(ground: Ground) -> Reply:
    return await ground.send(method="PUT")


async def no_response(ground: Ground) -> Reply:
    return await ground.send(method="GET", path="/v1/responses/resp_nobody")


async def no_file(ground: Ground) -> Reply:
    return await ground.send(method="GET", path="/v1/files/file-nobody")


async def no_batch(ground: Ground) -> Reply:
    room = "/v1/messages/batches" if ground.endpoint == "messages" else "/v1/batches"
    return await ground.send(method="GET", path=f"{room}/nobody")


async def a_conversation(ground: Ground) -> str:
    made = await ground.send(b"{}", path="/v1/conversations")
    return str(made.tree["id"])


async def no_item(ground: Ground) -> Reply:
    path = f"/v1/conversations/{await a_conversation(ground)}/items/msg_nobody"
    return await ground.send(method="GET", path=path)


async def two_at_once(ground: Ground) -> Reply:
    talk = await a_conversation(ground)
    conversations = ground.gateway.plane._threads.conversations
    project = Project("acme", "research", "assistant")
    await ground.gateway.does(conversations.begin("req_other", project, talk, takes=True))
    return await ground.post(conversation=talk)


async def denied(ground: Ground) -> Reply:
    database = open_database(ground.gateway.settings.database_url)
    rule = {"name": "no", "when": 'project == "closed"', "deny": "This project is closed."}
    made = document(rule)
    store = PolicyStore(database, SystemClock())
    snapshots = ground.gateway.plane.snapshots
    if INSTALLATION not in snapshots.policies.levels:
        version = await store.draft(INSTALLATION, made, "Ann")
        await store.act(INSTALLATION, version.number, "approve", "Bob")
        await store.act(INSTALLATION, version.number, "publish", "Bob")
    await database.close()
    while INSTALLATION not in snapshots.policies.levels:
        await asyncio.sleep(0.01)
    reply = await ground.post(key=await ground.key_of("closed"))
    assert b"This project is closed." in reply.body
    return reply


async def out_of_scope(ground: Ground) -> Reply:
    models = {ENGINE_TARGET}
    return await ground.post(key=await ground.gateway.issue_key(models=models))


async def too_often(ground: Ground) -> Reply:
    project = f"often-{next(_numbers)}"
    database = open_database(ground.gateway.settings.database_url)
    account = f"proj:acme/research/{project}"
    await RateLimitTable(database).set(RateLimit(account, requests_per_minute=1))
    await database.close()
    while not ground.gateway.plane._rates._book.of((account,)):  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    key = await ground.key_of(project)
    await ground.post(key=key)
    return await ground.post(key=key)


async def out_of_budget(ground: Ground) -> Reply:
    project = f"poor-{next(_numbers)}"
    database = open_database(ground.gateway.settings.database_url)
    account = f"proj:acme/research/{project}"
    await LeaseTable(database, SystemClock()).set_limit(Limit(account, 1))
    await database.close()
    while ground.gateway.budget_left((account,)) is None:
        await asyncio.sleep(0.01)
    return await ground.post("Good morning " * 500, key=await ground.key_of(project))


async def full(ground: Ground) -> Reply:
    turns = ground.gateway.plane._turns
    turns.present += 100
    ground.undo.callback(lambda: setattr(turns, "present", turns.present - 100))
    return await ground.post()


async def nobody_there(ground: Ground) -> Reply:
    ground.upstream(Answer(fault="reset"))
    return await ground.post()


async def no_credential(ground: Ground) -> Reply:
    is_vectors = ground.endpoint == "embeddings"
    name = "unset-vectors" if is_vectors else "unset-model"
    key = await ground.gateway.issue_key(models={name})
    reply = await ground.post(key=key, model=name)
    assert name.encode() in reply.body
    return reply


async def no_audit(ground: Ground) -> Reply:
    await until_ready(ground.gateway, ground.http, 200)
    with audit_folder_gone(ground.gateway):
        reply = await ground.post()
    await until_ready(ground.gateway, ground.http, 200)
    return reply


async def stale(ground: Ground) -> Reply:
    ground.patches.setattr(ground.gateway.plane.snapshots, "age_s", lambda: STALE_AFTER_S + 1)
    return await ground.post()


async def gave_up(ground: Ground) -> Reply:
    body = b'{"id":"x","object":"response","status":"failed","model":"m","output":[]}'
    if ground.endpoint != "responses":
        body = b'{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant",'
        body += b'"content":"half"},"finish_reason":"abort"}]}'
    ground.upstream(Answer(body=body))
    return await ground.post()


async def full_pool(ground: Ground) -> Reply:
    """Its only member went down, and no probe of the pool has said so yet."""
    name = "pooled-vectors" if ground.endpoint == "embeddings" else "pooled"
    key = await ground.gateway.issue_key(models={name})
    while True:
        board = ground.gateway.plane.snapshots.board
        with ground.patches.context() as patches:
            patches.setattr(board, "unavailable", {})
            reply = await ground.post(key=key, model=name)
        if b"of the pool" in reply.body:
            return reply


async def forged(ground: Ground) -> Reply:
    def refuse(*_: object) -> None:
        raise errors.SovereigntyViolation("the destination is outside what policy permits")

    ground.patches.setattr("gateway.providers.egress.client.check_clearance", refuse)
    return await ground.post()


def answering(answer: Answer, **fields: object) -> Make:
    async def make(ground: Ground) -> Reply:
        ground.upstream(answer)
        return await ground.post(**fields)  # type: ignore[arg-type]

    return make


def asking(text: str = "Good morning", **fields: object) -> Make:
    async def make(ground: Ground) -> Reply:
        return await ground.post(text, **fields)  # type: ignore[arg-type]

    return make


async def crashed(ground: Ground) -> Reply:
    ground.patches.setattr("gateway.intake.planning.gather", crash)
    return await ground.post()


async def unread(ground: Ground) -> Reply:
    return await ground.send(b"{")


async def stranger(ground: Ground) -> Reply:
    return await ground.post(key="gw_nobody")


CHATS = ("chat", "responses", "messages")
LONG_ANSWER = Answer(text="one two three four five six " * 20, fault="mid_reset")
UNPAID = b'{"error":{"message":"Pay.","type":"insufficient_quota","code":"insufficient_quota"}}'
CASES: Mapping[str, Case] = {
    "internal_error": Case(crashed),
    "invalid_request": Case(unread),
    "request_too_large": Case(too_large),
    "unsupported_encoding": Case(compressed),
    "unknown_url": Case(nothing_there, outcome=""),
    "method_not_allowed": Case(wrong_method, outcome=""),
    "response_not_found": Case(no_response, outcome="", endpoints=("responses",)),
    "file_not_found": Case(no_file, outcome="", endpoints=("chat", "messages")),
    "batch_not_found": Case(no_batch, outcome="", endpoints=("chat", "messages")),
    "conversation_not_found": Case(asking(conversation="conv_nobody"), endpoints=("responses",)),
    "item_not_found": Case(no_item, outcome="", endpoints=("responses",)),
    "conversation_locked": Case(two_at_once, endpoints=("responses",), waits=True),
    "previous_response_not_found": Case(
        asking(previous_response_id="resp_nobody"), endpoints=("responses",)
    ),
    "model_not_found": Case(asking(model="nobody")),
    "context_length_exceeded": Case(asking("1;" * 90_000, model=ENGINE_TARGET), endpoints=CHATS),
    "unsupported_parameter": Case(asking(extra_body={"a": 1})),
    "invalid_api_key": Case(stranger),
    "policy_denied": Case(denied),
    "no_permitted_target": Case(out_of_scope),
    "rate_limited": Case(too_often, waits=True),
    "insufficient_quota": Case(out_of_budget),
    "unavailable": Case(full, outcome="", waits=True),
    "no_target_available": Case(nobody_there, outcome="failed", waits=True),
    "no_target_configured": Case(no_credential),
    "audit_unavailable": Case(no_audit, outcome=""),
    "not_ready": Case(stale, outcome="", waits=True),
    "upstream_failed": Case(gave_up, outcome="failed", endpoints=CHATS),
    "upstream_refused": Case(answering(Answer(status=502)), outcome="failed"),
    "upstream_unpaid": Case(answering(Answer(status=429, body=UNPAID)), outcome="failed"),
    "upstream_timeout": Case(answering(Answer(fault="hang")), outcome="failed"),
    "upstream_unreachable": Case(
        answering(LONG_ANSWER, stream=True), outcome="incomplete", endpoints=CHATS, in_stream=True
    ),
    "pool_busy": Case(full_pool, outcome="failed", waits=True),
    "upstream_malformed": Case(answering(Answer(fault="bad_json")), outcome="failed"),
    "stream_broken": Case(
        answering(Answer(events=()), stream=True), outcome="failed", endpoints=CHATS
    ),
    "sovereignty_violation": Case(forged, outcome="failed"),
}


def test_every_error_of_the_page_that_callers_are_told_has_a_case() -> None:
    told = {code for code, row in table().items() if ELSEWHERE.match(row[2]) is None}
    assert set(CASES) == told
    assert set(table()) - told == {
        *("conflict", "lease_over", "client_gone", "permission_denied", "worker_stopped"),
    }


@pytest.fixture
async def undo() -> AsyncIterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("code", "endpoint"),
    [(code, endpoint) for code, case in CASES.items() for endpoint in case.endpoints],
)
async def test_callers_get_it_as_the_page_says(
    code: str,
    endpoint: str,
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    shared_key: str,
    undo: ExitStack,
) -> None:
    case = CASES[code]
    with pytest.MonkeyPatch.context() as patches:
        ground = Ground(gateway, upstreams, http, shared_key, endpoint, patches, undo)
        reply = await case.make(ground)

    check_reply(reply, code, endpoint)
    undo.close()
    await check_record(gateway, reply, code)


def check_reply(reply: Reply, code: str, endpoint: str) -> None:
    case, is_anthropic = CASES[code], endpoint == "messages"
    for_openai, for_anthropic, _ = table()[code]
    status, kind = for_anthropic if is_anthropic else for_openai
    assert reply.headers["x-request-id"] == reply.headers["request-id"]
    assert LEAK.search(reply.body.decode()) is None, reply.body
    if case.in_stream:
        assert reply.status == 200
        return check_event(reply, code, kind, endpoint)
    tree = reply.tree
    told = tree["error"]
    assert (reply.status, told["type"]) == (status, kind), reply
    assert told["message"]
    if is_anthropic:
        assert (tree["type"], tree["request_id"]) == ("error", reply.request_id)
    else:
        assert (told.keys(), told["code"]) == ({"message", "type", "param", "code"}, code)
    retryable = class_of(code).retryable
    assert reply.headers.get("x-should-retry") == (None if retryable else "false")
    if case.waits:
        assert int(reply.headers["retry-after"]) >= 1
    assert retryable or "retry-after" not in reply.headers
    return None


def check_event(reply: Reply, code: str, kind: str, endpoint: str) -> None:
    """What a stream says that broke: the same in its own envelope, and no good end."""
    events = re.findall(rb"^data: (\{.*\})\r?$", reply.body, re.MULTILINE)
    last = msgspec.json.decode(events[-1])
    if endpoint == "responses":
        assert (last["type"], last["code"]) == ("error", code)
        assert b"response.completed" not in reply.body
        return
    assert last["error"]["type"] == kind
    assert endpoint == "messages" or last["error"]["code"] == code
    assert not any(end in reply.body for end in (b"[DONE]", b"message_stop"))


async def check_record(gateway: RunningGateway, reply: Reply, code: str) -> None:
    records = await gateway.records(reply.request_id)
    ends = [(each.status, each.error) for each in records if each.stage == "outcome"]
    outcome = CASES[code].outcome
    assert ends == ([(outcome, code)] if outcome else [])
    if outcome == "refused":
        assert [each for each in records if each.stage == "intent"] == []


def class_of(code: str) -> type[GatewrightError]:
    return next(
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, GatewrightError) and kind.code == code
    )
