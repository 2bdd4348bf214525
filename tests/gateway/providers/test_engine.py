"""An in-house engine is told on whose behalf a call comes, by us and by nobody else."""

import threading

import msgspec
import pytest

from gateway.errors import ConfigurationInvalid, SovereigntyViolation, UpstreamMalformed
from gateway.pool.capabilities import Capability
from gateway.pool.figures import Figures, figures_of
from gateway.ports import UpstreamCall
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.engine import (
    ANSWER_BYTES_MAX,
    METRICS_BYTES_MAX,
    SHORT_METRICS_BYTES_MAX,
    VALUES_MAX,
    EngineProvider,
)
from gateway.secrets.secret import Secret
from tests.gateway.providers.egress.test_connection import running
from tests.gateway.providers.samples import HOME, make_call
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

CLAIMS = {"cache_salt": "somebody-else", "extra_key": "too", "priority": -5, "messages": []}


def build(
    upstream: RecordingUpstream, egress: Egress, engine: str, *, priorities: bool = False
) -> EngineProvider:
    config = ProviderConfig(
        name="house",
        kind="engine",
        jurisdiction=HOME,
        base_url=upstream.url,
        credential=Secret("of-this-run"),
        engine=engine,
        priorities=priorities,
    )
    return EngineProvider(config, egress)


async def asked(
    engine: EngineProvider,
    upstream: RecordingUpstream,
    tenant: str = "acme",
    data_class: str = "S1",
    tier: str = "batch",
) -> RecordedRequest:
    """What the engine gets for a call whose caller claims a salt and a priority."""
    call = msgspec.structs.replace(
        make_call(),
        body=msgspec.json.encode(CLAIMS),
        tenant=tenant,
        data_class=data_class,
        service_tier=tier,
    )
    reply = await engine.open(call)
    await reply.read()
    await reply.close()
    return upstream.requests[-1]


async def test_our_engine_hears_tenant_class_and_tier_in_headers(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    engine = build(upstream, egress, "gatewright")
    for tenant, tier in (("acme", "batch"), ("other", "priority"), ("acme", "batch")):
        request = await asked(engine, upstream, tenant, "S2", tier)
        assert request.headers["x-gatewright-tenant"] == tenant
        assert request.headers["x-gatewright-data-class"] == "S2"
        assert request.headers["x-gatewright-tier"] == tier
        assert request.headers["authorization"] == "Bearer of-this-run"
        assert request.path == "/v1/chat/completions"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_a_salt_is_ours_the_same_for_a_tenant_and_another_for_others(
    upstream: RecordingUpstream, egress: Egress, engine: str
) -> None:
    first, second = (build(upstream, egress, engine) for _ in range(2))
    salt = (await asked(first, upstream)).json["cache_salt"]
    assert salt == (await asked(second, upstream)).json["cache_salt"]
    others = {
        (await asked(first, upstream, tenant="other")).json["cache_salt"],
        (await asked(first, upstream, data_class="S3")).json["cache_salt"],
    }
    assert len({salt, CLAIMS["cache_salt"], *others}) == 4
    assert "x-gatewright-tenant" not in upstream.requests[-1].headers


@pytest.mark.parametrize("engine", ["vllm", "sglang", "ollama", "tensorrt-llm"])
async def test_a_callers_salt_and_priority_reach_no_engine(
    upstream: RecordingUpstream, egress: Egress, engine: str
) -> None:
    body = (await asked(build(upstream, egress, engine), upstream)).json
    assert body.keys().isdisjoint({"priority", "extra_key"})
    assert body.get("cache_salt") != CLAIMS["cache_salt"]


async def test_an_engine_that_schedules_by_priority_gets_the_tiers_number(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    engine = build(upstream, egress, "vllm", priorities=True)
    numbers = [
        (await asked(engine, upstream, tier=tier)).json["priority"]
        for tier in ("priority", "standard", "batch")
    ]
    assert numbers == [0, 1, 2]


async def test_an_engine_is_asked_for_its_figures_and_for_a_greedy_answer(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.texts["/metrics"] = "vllm:num_requests_waiting 3\nvllm:num_requests_running 2\n"
    engine = build(upstream, egress, "vllm")
    assert await engine.figures() == Figures(3.0, 2.0)
    assert upstream.requests[-1].path == "/metrics"
    assert await build(upstream, egress, "ollama").figures() is None
    del upstream.texts["/metrics"]
    assert await engine.figures() is None

    upstream.answer(Answer(text="six, seven"))
    assert await engine.greedy("qwen", "Continue: one, two", 5) == "six, seven"
    asked = upstream.requests[-1]
    assert asked.json == {
        "model": "qwen",
        "messages": [{"role": "user", "content": "Continue: one, two"}],
        "temperature": 0,
        "max_tokens": 5,
    }
    for answer in (Answer(status=500), Answer(body=b"{}"), Answer(body=b'{"choices":[]}')):
        upstream.answer(answer)
        with pytest.raises(UpstreamMalformed):
            await engine.greedy("qwen", "Continue: one, two", 5)


async def test_an_engine_is_asked_how_a_conversation_is_cut_into_tokens(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    engine = build(upstream, egress, "vllm")
    body = {"model": "qwen", "messages": [{"role": "user", "content": "Hi"}], "temperature": 1}
    call = msgspec.structs.replace(make_call(), body=msgspec.json.encode(body), tenant="acme")
    upstream.answer(Answer(body=b'{"tokens":[1,2,3],"count":3}'))
    assert await engine.tokens_of(call) == (1, 2, 3)
    asked = upstream.requests[-1]
    assert asked.path == "/tokenize"
    assert asked.json == {"model": "qwen", "messages": body["messages"]}
    for answer in (Answer(status=404), Answer(body=b'{"tokens":"none"}')):
        upstream.answer(answer)
        with pytest.raises(UpstreamMalformed):
            await engine.tokens_of(call)
    with pytest.raises(SovereigntyViolation):
        await engine.tokens_of(msgspec.structs.replace(call, clearance=frozenset()))
    sent = await asked_salt(engine, upstream, call)
    assert engine.salt_of(call) == sent


async def test_what_an_engine_says_in_no_utf_8_is_malformed_and_breaks_nothing_else(
    egress: Egress,
) -> None:
    json = b'{"choices":[{"message":{"content":"\xff"}}],"data":[{"id":"\xff"}]}'
    packed = b"\x84\xa5epoch\xa1\xff\xa4next\x00\xa8is_whole\xc2\xa4news\xc4\x00"
    answers: list[list[bytes | None]] = [
        [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said)]
        for said in (json, json, packed)
    ]
    async with running(*answers) as raw:
        config = ProviderConfig(
            name="house",
            kind="engine",
            jurisdiction=HOME,
            base_url=f"http://127.0.0.1:{raw.port}",
        )
        engine = EngineProvider(config, egress)
        with pytest.raises(UpstreamMalformed):
            await engine.greedy("qwen", "Continue: one, two", 5)
        with pytest.raises(UpstreamMalformed):
            await engine.list_models()
        with pytest.raises(UpstreamMalformed):
            await engine.cache_news("", 0)


async def asked_salt(
    engine: EngineProvider, upstream: RecordingUpstream, call: UpstreamCall
) -> object:
    upstream.answer(Answer())
    reply = await engine.open(call)
    await reply.read()
    return upstream.requests[-1].json["cache_salt"]


@pytest.mark.parametrize(
    ("engine", "address"), [("ollama", "ipc:///run/e"), ("vllm", "tcp://10.0.0.1:5557")]
)
async def test_events_that_cannot_be_read_or_cross_the_network_are_refused(
    egress: Egress, engine: str, address: str
) -> None:
    config = ProviderConfig(
        name="house",
        kind="engine",
        jurisdiction=HOME,
        base_url="http://127.0.0.1:1",
        engine=engine,
        events=address,
    )
    with pytest.raises(ConfigurationInvalid, match="events"):
        EngineProvider(config, egress)


async def test_figures_without_end_are_none_and_many_are_read_beside_the_loop(
    upstream: RecordingUpstream, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def watched(text: str, able: Capability) -> Figures:
        threads.append(threading.get_ident())
        return figures_of(text, able)

    monkeypatch.setattr("gateway.providers.engine.figures_of", watched)
    engine = build(upstream, egress, "vllm")
    sample = "vllm:num_requests_waiting 3\n"
    for told in ("", "\n" * SHORT_METRICS_BYTES_MAX):
        upstream.texts["/metrics"] = sample + told
        assert await engine.figures() == Figures(waiting=3.0)
    upstream.texts["/metrics"] = sample + "\n" * METRICS_BYTES_MAX
    with pytest.raises(UpstreamMalformed):
        await engine.figures()
    assert [each == threading.get_ident() for each in threads] == [True, False]


@pytest.mark.parametrize(
    ("length", "count"), [(1, VALUES_MAX + 2), (100_000, ANSWER_BYTES_MAX // 100_000 + 1)]
)
async def test_a_list_of_models_that_would_be_read_for_long_is_none(
    length: int, count: int, upstream: RecordingUpstream, egress: Egress
) -> None:
    models = [{"id": "m" * length}] * count
    upstream.texts["/v1/models"] = msgspec.json.encode({"data": models}).decode()
    engine = build(upstream, egress, "vllm")
    with pytest.raises(UpstreamMalformed, match="unknown form"):
        await engine.list_models()
