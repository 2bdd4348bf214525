"""No field or header of a request decides where it goes, with which credential, or as whom."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.dialects.bodies.reserved import NAMES
from gateway.errors import SovereigntyViolation
from gateway.routing.planning import rule
from tests.faults.envelopes import STYLES, Caller, Style, ask, untouched
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, GPT_TARGET, Upstreams
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("style", STYLES)


@pytest.fixture
async def trap() -> Any:
    """Listens where nobody should ever connect to."""
    async with RecordingUpstream() as running:
        yield running


def bait(url: str) -> dict[str, object]:
    """Every name under which some gateway has taken a destination or a credential from callers."""
    names = (
        "api_base",
        "base_url",
        "api_host",
        "endpoint",
        "url",
        "host",
        "proxy",
        "custom_llm_provider",
        "azure_endpoint",
        "resourceName",
        "callback_url",
        "webhook",
    )
    return {
        **dict.fromkeys(names, url),
        "api_key": "sk-smuggled",
        "extra_headers": {"authorization": "Bearer sk-smuggled", "host": url},
        "headers": {"x-api-key": "sk-smuggled"},
        "extra_body": {"api_base": url},
        "litellm_params": {"api_base": url, "api_key": "sk-smuggled"},
        "metadata": {"user_id": "someone", "api_base": url},
        "organization": "other",
        "jurisdiction": "in-house",
        "gatewright": {"target": CLAUDE_TARGET, "clearance": ["us"]},
    }


@both
@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_no_field_of_a_body_changes_the_destination(
    caller: Caller, upstreams: Upstreams, trap: RecordingUpstream, style: Style, target: str
) -> None:
    fields = {name: each for name, each in bait(trap.url).items() if name not in NAMES}
    if style == "anthropic":
        fields["metadata"] = {"user_id": "someone"}

    reply = await caller.post(style, ask(style, model=target) | fields)

    assert reply.status == 200, reply
    assert reply.headers["x-gatewright-target"] == target
    assert not trap.connections
    calls = [call for u in (upstreams.engine, *upstreams.managed) for call in u.calls]
    assert len(calls) == 1
    assert "sk-smuggled" not in str(calls[0].headers)
    assert trap.url.removeprefix("http://") not in str(calls[0].headers)
    assert calls[0].path in ("/v1/chat/completions", "/v1/messages")


ORDERS = {
    "chat_template_kwargs": {"chat_template": "{{ 7 * 7 }}"},
    "provider": {"only": ["elsewhere"]},
    "plugins": [{"id": "web"}],
    "input_ids": [1, 2, 3],
}


@both
async def test_what_is_an_order_to_an_upstream_is_refused_in_the_callers_own_words(
    caller: Caller, upstreams: Upstreams, trap: RecordingUpstream, style: Style
) -> None:
    fields = ORDERS | {name: each for name, each in bait(trap.url).items() if name in NAMES}
    assert fields.keys() > {"api_base", "api_key", "extra_body"}
    for name, value in fields.items():
        body = ask(style, model=GPT_TARGET) | {name: value}
        outcome = await caller.refused(style, body, "unsupported_parameter")
        assert "sk-smuggled" not in str(outcome)
    assert untouched(upstreams)
    assert not trap.connections


HEADERS = {
    "x-forwarded-for": "10.0.0.1",
    "x-forwarded-host": "evil.example",
    "x-forwarded-proto": "https",
    "x-forwarded-prefix": "/evil",
    "forwarded": "for=10.0.0.1;host=evil.example",
    "x-original-url": "/admin",
    "x-rewrite-url": "/admin",
    "x-http-method-override": "DELETE",
    "x-request-id": "req_of_the_caller",
    "request-id": "req_of_the_caller",
    "x-gatewright-target": CLAUDE_TARGET,
    "x-gatewright-clearance": "us",
    "x-gatewright-organisation": "other",
    "x-gatewright-receipt": "w0.1.1.00",
    "x-litellm-api-key": "sk-smuggled",
    "x-portkey-custom-host": "http://evil.example",
    "openai-organization": "org-other",
    "anthropic-beta": "canary-beta",
    "cookie": "session=sk-smuggled",
    "referer": "http://evil.example",
    "user-agent": "canary-agent",
    "traceparent": "00-canary",
}


@both
async def test_no_header_changes_destination_identity_or_evidence(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    reply = await caller.post(style, ask(style), caller.headers(style) | HEADERS)

    assert reply.status == 200
    assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
    assert reply.request_id != HEADERS["x-request-id"]
    (call,) = upstreams.engine.calls
    sent = str(call.headers)
    assert not any(word in sent for word in ("evil", "smuggled", "canary", "10.0.0.1", "other"))
    records = await caller.gateway.records(reply.request_id)
    assert {record.organisation for record in records} == {"acme"}
    text = msgspec.json.encode(records).decode()
    assert not any(word in text for word in ("evil", "smuggled", "canary", "req_of_the_caller"))


MODELS = (
    "http://{host}/v1",
    "{host}",
    "//{host}/",
    "house-model#@{host}",
    "house-model?host={host}",
    "house-model/../../{host}",
    "openai/{host}",
    "engine/fake-model",
    "anthropic:claude-opus-5-5",
    "house-model%00",
    "auto:http://{host}",
    "auto:cheap/../quality",
    "fake-model",
    "house-model ",
    " house-model",
    "house\u2010model",
    "{{7*7}}",
    "${{jndi:ldap://{host}/a}}",
    "' OR '1'='1",
)


@both
@pytest.mark.parametrize("model", MODELS)
async def test_a_model_name_is_a_name_and_nothing_else(
    caller: Caller, upstreams: Upstreams, trap: RecordingUpstream, style: Style, model: str
) -> None:
    name = model.replace("{host}", f"127.0.0.1:{trap.port}")

    reply = await caller.post(style, ask(style, model=name))

    assert reply.status == 404
    assert not trap.connections
    assert not any(u.calls for u in (upstreams.engine, *upstreams.managed))


@both
async def test_an_image_address_is_not_fetched_by_the_gateway(
    caller: Caller, upstreams: Upstreams, trap: RecordingUpstream, style: Style
) -> None:
    url = f"{trap.url}/image.png"
    part: dict[str, object] = (
        {"type": "image_url", "image_url": {"url": url}}
        if style == "openai"
        else {"type": "image", "source": {"type": "url", "url": url}}
    )
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "what is it?"}]}]

    for model in ("auto", CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET):
        await caller.post(style, ask(style, model=model, messages=messages))

    assert not trap.connections
    assert not any(upstream.calls for upstream in upstreams.managed)


async def test_the_egress_refuses_a_plan_that_was_forged(
    caller: Caller, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision said in-house; somebody slips a managed candidate into the plan."""

    def forged(*arguments: Any) -> Any:
        ruling = rule(*arguments)
        target = caller.gateway.plane.snapshots.current().board.targets[CLAUDE_TARGET]
        candidates = tuple(
            structs.replace(candidate, target=target) for candidate in ruling.plan.candidates
        )
        plan = structs.replace(ruling.plan, candidates=candidates)
        return structs.replace(ruling, plan=plan)

    monkeypatch.setattr("gateway.intake.planning.rule", forged)

    for stream in (False, True):
        body = ask("openai", model="auto:in-house", stream=stream)
        reply = await caller.post("openai", body)
        assert reply.status == 500
        assert reply.tree["error"]["code"] == SovereigntyViolation.code
        outcome = (await caller.gateway.records(reply.request_id))[-1]
        assert (outcome.status, outcome.error) == ("failed", "sovereignty_violation")
    assert not any(upstream.requests for upstream in upstreams.managed)
