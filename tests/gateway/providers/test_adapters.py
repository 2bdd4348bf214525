"""Each kind of upstream: its path, headers, availability and probe; and the official SDKs' word."""

import json
import subprocess
import sys

import anthropic
import httpx2
import openai
import pytest
from msgspec.structs import replace

from gateway.configuration.kinds import PROVIDER_KINDS
from gateway.configuration.settings import ProviderSettings
from gateway.errors import ConfigurationInvalid, SovereigntyViolation, UpstreamUnreachable
from gateway.ports import Provider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.engine import EngineProvider
from gateway.providers.registry import KINDS, build_provider, place
from gateway.providers.sdk_clients import LIST_BYTES_MAX
from gateway.secrets.secret import Secret
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

# What an SDK says about itself and its transport; an upstream does not need it to answer.
ABOUT_THE_CLIENT = {
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "user-agent",
}


def build(
    kind: str, upstream: RecordingUpstream, egress: Egress, credential: Secret[str] | None = None
) -> Provider:
    config = ProviderConfig(
        name="somebody",
        kind=kind,
        jurisdiction=HOME,
        base_url=upstream.url,
        credential=credential,
    )
    return build_provider(config, egress)


async def send(provider: Provider) -> bytes:
    reply = await provider.open(make_call())
    try:
        return await reply.read()
    finally:
        await reply.close()


def meaning(request: RecordedRequest) -> dict[str, str]:
    return {
        name: value
        for name, value in request.headers.items()
        if name not in ABOUT_THE_CLIENT and not name.startswith("x-stainless")
    }


async def test_anthropic_gets_what_the_official_sdk_sends(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    credential = make_secret()
    await send(build("anthropic", upstream, egress, credential))
    client = anthropic.AsyncAnthropic(
        api_key=credential.reveal(), base_url=upstream.url, max_retries=0
    )
    await client.messages.create(model="fake-model", max_tokens=5, messages=[])
    await client.close()
    ours, theirs = upstream.requests
    assert ours.path == theirs.path == "/v1/messages"
    assert meaning(ours) == meaning(theirs)


async def test_openai_gets_what_the_official_sdk_sends(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    credential = make_secret()
    await send(build("openai", upstream, egress, credential))
    client = openai.AsyncOpenAI(
        api_key=credential.reveal(), base_url=f"{upstream.url}/v1", max_retries=0
    )
    await client.chat.completions.create(model="fake-model", messages=[])
    await client.close()
    ours, theirs = upstream.requests
    assert ours.path == theirs.path == "/v1/chat/completions"
    assert meaning(ours) == meaning(theirs)


async def test_a_base_url_in_the_style_of_the_sdks_leads_to_the_same_path(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    config = ProviderConfig("c", "openai_compatible", HOME, f"{upstream.url}/v1/")
    await send(build_provider(config, egress))
    assert upstream.requests[0].path == "/v1/chat/completions"
    assert "authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_managed_upstream_without_credential_says_so_and_sends_nothing(
    upstream: RecordingUpstream, egress: Egress, kind: str
) -> None:
    provider = build(kind, upstream, egress)
    assert provider.unavailable_reason == "no credential"
    assert await provider.probe() == "no credential"
    with pytest.raises(UpstreamUnreachable):
        await provider.open(make_call())
    with pytest.raises(SovereigntyViolation):
        await provider.open(make_call(clearance=frozenset()))


async def test_a_credential_that_its_place_may_still_give_is_missing_for_now_only(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    config = ProviderConfig("c", "openai", "us", upstream.url, credential_may_come=True)
    assert build_provider(config, egress).unavailable_reason == "no credential now"
    assert upstream.connections == 0


@pytest.mark.parametrize("kind", ["openai_compatible", "engine"])
async def test_an_upstream_whose_credential_is_named_is_not_called_without_it(
    upstream: RecordingUpstream, egress: Egress, kind: str
) -> None:
    """It may answer anybody: what it would be sent is for whom the credential says."""
    config = ProviderConfig("c", kind, HOME, upstream.url, credential_is_named=True)
    provider = build_provider(config, egress)
    assert provider.unavailable_reason == "no credential"
    with pytest.raises(UpstreamUnreachable):
        await provider.open(make_call())
    assert upstream.connections == 0
    there = build_provider(replace(config, credential=make_secret()), egress)
    assert there.unavailable_reason == ""


@pytest.mark.parametrize("kind", ["openai_compatible", "engine"])
async def test_an_upstream_of_our_own_needs_no_credential(
    upstream: RecordingUpstream, egress: Egress, kind: str
) -> None:
    assert build(kind, upstream, egress).unavailable_reason == ""


@pytest.mark.parametrize("kind", ["anthropic", "openai", "openai_compatible", "engine"])
async def test_a_probe_is_content_with_a_list_of_models(
    upstream: RecordingUpstream, egress: Egress, kind: str
) -> None:
    credential = make_secret()
    provider = build(kind, upstream, egress, credential)
    assert await provider.probe() == ""
    asked = upstream.requests[-1]
    assert (asked.method, asked.path.partition("?")[0], asked.body) == ("GET", "/v1/models", b"")
    assert asked.headers["authorization"] == f"Bearer {credential.reveal()}"
    assert not [name for name in asked.headers if name.startswith("x-stainless")]


@pytest.mark.parametrize("kind", ["anthropic", "openai", "openai_compatible", "engine"])
async def test_a_probe_of_a_dead_upstream_says_why_without_an_address(
    egress: Egress, kind: str
) -> None:
    async with RecordingUpstream() as upstream:
        provider = build(kind, upstream, egress, make_secret())
    verdict = await provider.probe()
    assert verdict == "the upstream could not be connected to"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (401, "the credential was refused (HTTP 401)"),
        (403, "the credential was refused (HTTP 403)"),
        (503, "it answered with HTTP 503"),
    ],
)
@pytest.mark.parametrize("kind", ["anthropic", "openai", "openai_compatible"])
async def test_a_probe_tells_refusals_apart_and_tries_once(
    upstream: RecordingUpstream, egress: Egress, kind: str, status: int, verdict: str
) -> None:
    upstream.models_status = status
    assert await build(kind, upstream, egress, make_secret()).probe() == verdict
    assert len(upstream.requests) == 1


async def test_an_engine_tells_its_identity_and_whether_it_is_ready(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    ours: dict[str, object] = {"id": "demo", "digest": "abc", "context_window_tokens": 512}
    upstream.models = (ours, {"id": "vllm", "max_model_len": 4096})
    engine = build("engine", upstream, egress)
    assert isinstance(engine, EngineProvider)
    models = await engine.list_models()
    assert [(one.id, one.digest, one.window_tokens) for one in models] == [
        ("demo", "abc", 512),
        ("vllm", "", 4096),
    ]
    assert await engine.probe() == ""
    upstream.models = ()
    assert await engine.probe() == "it serves no model"
    upstream.is_ready = False
    assert await engine.probe() == "it is not ready (HTTP 503)"


async def test_an_engine_must_live_at_a_private_address(egress: Egress) -> None:
    config = ProviderConfig("engine", "engine", HOME, "https://8.8.8.8")
    with pytest.raises(ConfigurationInvalid):
        build_provider(config, egress)


async def test_a_credential_that_could_break_a_header_is_refused_unseen(egress: Egress) -> None:
    for text in ("a\r\nx-evil: 1", "a b", "clé", "a\n"):
        config = ProviderConfig("o", "openai", HOME, credential=Secret(text))
        with pytest.raises(ConfigurationInvalid) as caught:
            build_provider(config, egress)
        assert text not in caught.value.message


async def test_an_unknown_kind_is_refused_with_the_known_ones(egress: Egress) -> None:
    with pytest.raises(ConfigurationInvalid, match="openai_compatible"):
        build_provider(ProviderConfig("o", "palm", HOME), egress)


def test_places_tell_in_house_and_scripted_kinds_apart() -> None:
    found = {kind: place("p", kind, HOME) for kind in KINDS}
    assert {kind for kind, one in found.items() if one.in_house} == {"engine", "pool"}
    assert {kind for kind, one in found.items() if one.target_prefix == "scripted/"} == {
        "scripted",
        "scripted_anthropic",
    }


async def test_the_settings_know_which_kinds_need_a_credential_as_their_adapters_do(
    egress: Egress,
) -> None:
    made = {
        kind: build_provider(
            ProviderConfig(
                *("p", kind, HOME, "http://127.0.0.1:9"), region="eu-west-1", project="a-project"
            ),
            egress,
        )
        for kind in KINDS
        if kind != "pool"
    }
    needing = {kind for kind, known in PROVIDER_KINDS.items() if known.needs_credential}
    assert {kind for kind, one in made.items() if one.unavailable_reason} == needing


def test_the_settings_know_the_kinds_that_have_adapters_and_what_fits_none_is_a_setting() -> None:
    assert set(PROVIDER_KINDS) == set(KINDS)
    unfit = {field for known in PROVIDER_KINDS.values() for field in known.unfit}
    assert unfit <= set(ProviderSettings.__struct_fields__)


def test_a_contracts_promises_are_those_of_the_settings_and_the_house_keeps_all() -> None:
    assert place("p", "openai", HOME).assurances == frozenset()
    assert place("p", "openai", HOME, ("no_training",)).assurances == {"no_training"}
    assert place("p", "engine", HOME).assurances == {"no_training", "no_retention"}
    with pytest.raises(ConfigurationInvalid, match="'no_logs' is none of no_retention"):
        place("p", "openai", HOME, ("no_training", "no_logs"))


async def test_error_statuses_reach_the_dispatcher_with_their_wait(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    provider = build("anthropic", upstream, egress, make_secret())
    for status in (400, 401, 429, 500, 529):
        upstream.answer_once(Answer(status=status, retry_after_s=1.0))
        reply = await provider.open(make_call())
        assert (reply.status, reply.retry_after_s) == (status, 1.0)
        assert await reply.read()
        await reply.close()


def test_building_every_adapter_imports_no_vendor_sdk() -> None:
    program = (
        "import sys\n"
        "import gateway.providers.registry\n"
        "assert not {'anthropic', 'openai', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules)\n"
        "assert not {'boto3', 'botocore', 'google.auth'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_of_a_long_list_of_models_no_object_is_made(
    upstream: RecordingUpstream, egress: Egress, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SDK makes one of each, on the event loop; whether there is a list is what is asked."""
    made = 0

    def watched(self: httpx2.Response) -> object:
        nonlocal made
        made += self.content.count(b'"id"')
        return json.loads(self.content)

    monkeypatch.setattr(httpx2.Response, "json", watched)
    upstream.models = tuple({"id": f"model-{at}"} for at in range(LIST_BYTES_MAX // 16))
    provider = build(kind, upstream, egress, make_secret())
    assert await provider.probe() == ""
    assert made == 0
