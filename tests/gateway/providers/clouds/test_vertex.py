"""Claude at Vertex AI: by tokens that are fetched, as the vendor's own client asks it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic import AsyncAnthropicVertex

from gateway.errors import ConfigurationInvalid, UpstreamUnreachable
from gateway.providers.clouds import proofs
from gateway.providers.clouds.provider import CloudProvider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.endpoint import Endpoint
from gateway.providers.egress.way_out import Proxy, WayOut
from gateway.providers.registry import build_provider
from gateway.secrets.secret import Secret
from tests.cloud_upstreams import PROJECT, TokenServer, VertexUpstream
from tests.gateway.providers.clouds.samples import MODEL, asked, call_of, vertex
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio


@pytest.fixture
async def upstream() -> AsyncIterator[VertexUpstream]:
    async with VertexUpstream() as running:
        yield running


@pytest.fixture
async def tokens(upstream: VertexUpstream) -> AsyncIterator[TokenServer]:
    async with TokenServer(upstream) as running:
        yield running


async def test_it_gets_what_the_vendors_client_sends(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    upstream.tokens.add("of-the-client")
    client = AsyncAnthropicVertex(
        region="europe-west4",
        project_id=PROJECT,
        access_token="of-the-client",
        base_url=f"{upstream.url}/v1",
        max_retries=0,
    )
    await client.messages.create(model=MODEL, max_tokens=5, messages=[])
    await client.messages.count_tokens(model=MODEL, messages=[])
    events = [
        event
        async for event in await client.messages.create(
            model=MODEL, max_tokens=5, messages=[], stream=True
        )
    ]
    await client.close()
    assert events[-1].type == "message_stop"
    provider = vertex(upstream, egress, tokens)
    assert (await asked(provider))[0] == 200
    assert await asked(provider, call_of(is_count=True)) == (200, b'{"input_tokens":11}')
    status, stream = await asked(provider, call_of(stream=True))
    assert status == 200
    assert b"message_stop" in stream
    theirs, ours = upstream.requests[:3], upstream.requests[3:]
    for one, other in zip(theirs, ours, strict=True):
        assert one.path == other.path
        assert one.json["anthropic_version"] == other.json["anthropic_version"]
    assert ours[0].headers["authorization"] == f"Bearer {tokens.given[0]}"
    assert await provider.probe() == ""
    assert await provider.list_status(5.0) == 200


async def test_who_may_ask_a_model_need_not_be_let_look_around(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    """A connection test goes on to its question; a refused proof still ends it."""
    provider = vertex(upstream, egress, tokens)
    await asked(provider)
    upstream.place = "/v1/projects/another/locations/europe-west4"
    assert await provider.list_status(5.0) == 404
    upstream.tokens.clear()
    assert await provider.list_status(5.0) == 401


async def test_a_provider_that_is_closed_waits_for_no_fetch(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    provider = vertex(upstream, egress, tokens)
    fetching = asyncio.create_task(provider.proof.renew())
    await asyncio.sleep(0)
    await provider.close()
    with pytest.raises(asyncio.CancelledError):
        await fetching


async def test_one_token_serves_all_calls_and_one_fetch_all_that_wait(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    provider = vertex(upstream, egress, tokens)
    answers = await asyncio.gather(*(asked(provider) for _ in range(20)))
    assert {status for status, _ in answers} == {200}
    await provider.proof.renew()
    assert len(tokens.given) == 1


async def test_a_caller_that_leaves_ends_nobody_elses_fetch(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    provider = vertex(upstream, egress, tokens)
    leaving, staying = (asyncio.create_task(asked(provider)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying)[0] == 200
    assert len(tokens.given) == 1


async def test_a_token_is_replaced_ahead_of_its_end(
    upstream: VertexUpstream,
    tokens: TokenServer,
    egress: Egress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    tokens.lasts_s = int(proofs.AHEAD_S) - 1
    provider = vertex(upstream, egress, tokens)
    await provider.proof.renew()
    await provider.proof.renew()
    assert len(tokens.given) == 2
    assert (await asked(provider))[0] == 200
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {tokens.given[1]}"
    tokens.is_down = True  # The one that is there serves to its end.
    await provider.proof.renew()
    assert (await asked(provider))[0] == 200
    assert provider.unavailable_reason == ""


async def test_a_token_that_has_run_out_and_cannot_be_had_again_makes_it_unavailable(
    upstream: VertexUpstream,
    tokens: TokenServer,
    egress: Egress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    tokens.lasts_s = 5
    provider = vertex(upstream, egress, tokens)
    await provider.proof.renew()
    assert provider.unavailable_reason == "its credential has run out"
    tokens.is_down = True
    with pytest.raises(UpstreamUnreachable) as caught:
        await asked(provider)
    assert caught.value.has_left is False
    assert provider.unavailable_reason.startswith("no access token (")
    assert tokens.email not in caught.value.message + provider.unavailable_reason
    assert upstream.requests == []
    tokens.is_down, tokens.lasts_s = False, 3600
    assert (await asked(provider))[0] == 200
    assert provider.unavailable_reason == ""


async def test_a_token_that_the_cloud_refuses_is_replaced(
    upstream: VertexUpstream,
    tokens: TokenServer,
    egress: Egress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    provider = vertex(upstream, egress, tokens)
    await asked(provider)
    upstream.tokens.clear()
    status, body = await asked(provider)
    assert status == 401
    assert tokens.given[0].encode() not in body
    assert PROJECT.encode() not in body
    await provider.proof.renew()
    assert (await asked(provider))[0] == 200


async def test_refusals_name_no_project_and_mean_what_google_means(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    provider = vertex(upstream, egress, tokens)
    for status, word, kind in (
        (429, "RESOURCE_EXHAUSTED", "rate_limit_error"),
        (403, "PERMISSION_DENIED", "permission_error"),
        (404, "NOT_FOUND", "not_found_error"),
        (400, "FAILED_PRECONDITION", "invalid_request_error"),
    ):
        message = f"Permission denied on //aiplatform.googleapis.com/projects/{PROJECT}/x {PROJECT}"
        tree = {"error": {"code": status, "status": word, "message": message}}
        for told in (tree, [tree]):
            upstream.answer_once(Answer(status=status, body=msgspec.json.encode(told)))
            got, body = await asked(provider)
            assert (got, msgspec.json.decode(body)["error"]["type"]) == (status, kind)
            assert PROJECT.encode() not in body
    vendors = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}
    upstream.answer_once(Answer(status=400, body=msgspec.json.encode(vendors)))
    assert msgspec.json.decode((await asked(provider))[1]) == vendors


async def test_the_machines_metadata_server_is_asked_where_no_key_is_named(
    upstream: VertexUpstream,
    tokens: TokenServer,
    egress: Egress,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    address = f"127.0.0.1:{tokens.port}"
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", address)
    monkeypatch.setenv("GCE_METADATA_IP", address)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    provider = vertex(upstream, egress)
    assert provider.has_proof
    tokens.says_nothing = True
    with pytest.raises(UpstreamUnreachable):
        await asked(provider)
    await provider.proof.renew()
    assert provider.unavailable_reason == "no access token (KeyError)"
    tokens.says_nothing = False
    assert (await asked(provider))[0] == 200
    assert provider.unavailable_reason == ""
    assert len(tokens.given) == 1


def test_what_is_held_is_not_shown() -> None:
    assert repr(proofs.Lease("ya29.token", 5)) == "Lease(ends_us=5)"


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"project": ""}, "project", "is needed of kind vertex"),
        ({"project": "../x"}, "project", "is no id of a project"),
        ({"region": "global"}, "region", "may be answered in any country, outside of `eu`"),
        ({"region": "us"}, "region", "`us` is not in `eu`"),
        ({"region": "eu"}, "region", "leaves the region to the cloud"),
        ({"region": "europe-west2"}, "region", "is not in `eu`"),
        ({"identity": "access_key"}, "identity", "must be one of credential, ambient"),
        ({"credential": Secret("sk-1")}, "credential", "is no key of a service account in JSON"),
        ({"token_url": "http://10.0.0.1/token"}, "token_url", "is plain http beyond loopback"),
        ({"token_url": "https://169.254.169.254/x"}, "token_url", "is link-local"),
        (
            {"token_url": "https://sts.test/token", "identity": "ambient"},
            "token_url",
            "means nothing beside",
        ),
        ({"credential": Secret("{}")}, "credential", "is no key of a service account in JSON"),
        (
            {"base_url": "https://us-east5-aiplatform.googleapis.com"},
            "base_url",
            "is in us-east5, and `region` says europe-west4",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_at_the_start(
    changes: dict[str, object], key: str, reason: str
) -> None:
    config = ProviderConfig("c", "vertex", "eu", region="europe-west4", project=PROJECT)
    with pytest.raises(ConfigurationInvalid) as caught:
        build_provider(msgspec.structs.replace(config, **changes), Egress())
    assert caught.value.key == key
    assert reason in caught.value.reason


async def test_a_key_does_not_say_who_is_asked_for_tokens(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress
) -> None:
    config = vertex(upstream, egress, tokens).config
    elsewhere = Secret(tokens.key(token_uri="https://elsewhere.test/token"))
    with pytest.raises(ConfigurationInvalid, match="names another token_uri"):
        build_provider(msgspec.structs.replace(config, credential=elsewhere), egress)


@pytest.mark.parametrize(
    ("region", "origin"),
    [
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com:443"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com:443"),
    ],
)
async def test_its_addresses_are_the_regions_own(egress: Egress, region: str, origin: str) -> None:
    config = ProviderConfig(
        *("c", "vertex", "eu"),
        region=region,
        project=PROJECT,
        identity="ambient",
        cross_region=True,
    )
    assert build_provider(config, egress).endpoint.origin == origin  # type: ignore[attr-defined]


def test_a_model_is_a_name_and_no_path() -> None:
    config = ProviderConfig("c", "vertex", "x", region="us-east5", project=PROJECT)
    provider = build_provider(config, Egress())
    for model, fits in (
        ("claude-opus-5-5", True),
        ("claude-opus-5-5@20261001", True),
        ("../../x:predict", False),
        ("claude/x", False),
        ("claude:rawPredict", False),
    ):
        assert (provider.check_model(model) == "") is fits  # type: ignore[attr-defined]


async def test_tokens_are_asked_for_by_the_way_out_of_their_provider(
    upstream: VertexUpstream, tokens: TokenServer, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through its proxy alone, which is not there."""
    way_out = WayOut(Proxy("127.0.0.1", 9))
    elsewhere = "https://tokens.test/token"
    config = msgspec.structs.replace(
        vertex(upstream, egress, tokens).config,
        base_url="https://vertex.test",
        way_out=way_out,
        token_url=elsewhere,
        credential=Secret(tokens.key(token_uri=elsewhere)),
    )
    asked_for: list[tuple[str, WayOut | None]] = []
    route = Egress.route

    def watched(self: Egress, endpoint: Endpoint, *given: Any, **named: Any) -> Route:
        asked_for.append((endpoint.host, endpoint.way_out))
        return route(self, endpoint, *given, **named)

    provider = build_provider(config, egress)
    assert isinstance(provider, CloudProvider)
    monkeypatch.setattr(Egress, "route", watched)
    await provider.proof.renew()
    assert provider.unavailable_reason.startswith("no access token (")
    assert set(asked_for) == {("tokens.test", way_out)}
    assert tokens.requests == []
