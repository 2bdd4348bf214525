"""Claude at Amazon Bedrock: signed, or with an API key, as the vendor's own client asks it."""

import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic import AsyncAnthropicBedrockMantle
from botocore.credentials import Credentials

from gateway.clock import SystemClock
from gateway.dialects.registry import DIALECTS
from gateway.errors import ConfigurationInvalid, SovereigntyViolation, UpstreamUnreachable
from gateway.providers.checking import Checker
from gateway.providers.clouds import proofs
from gateway.providers.clouds.aws_signing import LONG_BYTES, SignedProof
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.registry import build_provider
from gateway.secrets.secret import Secret
from tests.cloud_upstreams import ACCOUNT, ROLE, BedrockUpstream
from tests.gateway.providers.clouds.samples import MODEL, asked, bedrock, call_of
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio


@pytest.fixture
async def upstream() -> AsyncIterator[BedrockUpstream]:
    async with BedrockUpstream() as running:
        yield running


def text_of(key: Credentials) -> str:
    return ":".join(each for each in (key.access_key, key.secret_key, key.token) if each)


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing of this machine is found by boto3's chain but what a test puts there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return file


def put(file: Path, key: Credentials) -> None:
    file.write_text(
        f"[default]\naws_access_key_id={key.access_key}\naws_secret_access_key={key.secret_key}\n"
    )


@pytest.mark.parametrize("is_temporary", [False, True])
async def test_the_vendors_client_and_ours_are_both_believed_by_their_signatures(
    upstream: BedrockUpstream, egress: Egress, is_temporary: bool
) -> None:
    key = upstream.new_access_key(is_temporary=is_temporary)
    client = AsyncAnthropicBedrockMantle(
        aws_access_key=key.access_key,
        aws_secret_key=key.secret_key,
        aws_session_token=key.token,
        aws_region=upstream.region,
        base_url=f"{upstream.url}/anthropic",
        max_retries=0,
    )
    theirs = await client.messages.create(model=MODEL, max_tokens=5, messages=[])
    await client.close()
    status, ours = await asked(bedrock(upstream, egress, text_of(key)))
    assert status == 200
    assert msgspec.json.decode(ours)["content"][0]["text"] == theirs.content[0].text  # type: ignore[union-attr]
    of_them, of_us = upstream.requests
    assert of_us.path == of_them.path == "/anthropic/v1/messages"
    for name in ("anthropic-version", "content-type"):
        assert of_us.headers[name] == of_them.headers[name]
        assert name in of_us.headers["authorization"]
    assert of_us.headers.get("x-amz-security-token") == key.token


async def test_what_is_changed_on_its_way_or_signed_for_another_place_is_refused(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    """The judge of the judge: this cloud believes no signature that is not right."""
    key = upstream.new_access_key()
    provider = bedrock(upstream, egress, text_of(key))
    upstream.region = "us-east-1"
    assert (await asked(provider))[0] == 401
    upstream.region = "eu-central-1"
    assert (await asked(provider))[0] == 200
    upstream.service = "bedrock"
    assert (await asked(provider))[0] == 401
    upstream.service = "bedrock-mantle"
    upstream.access_keys[key.access_key] = Credentials(key.access_key, "another")
    assert (await asked(provider))[0] == 401


async def test_streams_counts_and_long_bodies_are_signed_too(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    provider = bedrock(upstream, egress, text_of(upstream.new_access_key()))
    reply = await provider.open(call_of(stream=True))
    assert reply.is_event_stream
    assert b"message_stop" in await reply.read()
    await reply.close()
    assert await asked(provider, call_of(is_count=True)) == (200, b'{"input_tokens":11}')
    assert upstream.requests[-1].path == "/anthropic/v1/messages/count_tokens"
    assert (await asked(provider, call_of(system="x" * (LONG_BYTES + 1))))[0] == 200
    assert await provider.list_status(5.0) == 200
    assert await provider.probe() == ""


async def test_an_api_key_goes_as_a_bearer_token_without_boto3(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    key = upstream.new_api_key()
    assert (await asked(bedrock(upstream, egress, key, "credential")))[0] == 200
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {key}"
    assert (await asked(bedrock(upstream, egress, "another", "credential")))[0] == 401


async def test_a_body_asks_for_no_feature_and_no_profile_by_the_clouds_own_fields(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    provider = bedrock(upstream, egress, upstream.new_api_key(), "credential")
    await asked(provider, call_of(anthropic_beta=["x"], anthropic_version="y", user_profile_id="z"))
    call = call_of()
    raw = call.body[:-1] + b',"\\u0061nthropic_beta":["x"]}'
    await asked(provider, msgspec.structs.replace(call, body=raw, betas=("effort-2025-11-24",)))
    for request in upstream.requests:
        assert request.json.keys() == {"model", "max_tokens", "messages", "stream"}
    assert upstream.requests[-1].headers["anthropic-beta"] == "effort-2025-11-24"


async def test_a_signature_of_another_time_says_that_clocks_differ_and_nothing_else(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    provider = bedrock(upstream, egress, text_of(upstream.new_access_key()))
    upstream.ahead_s = 3600
    status, body = await asked(provider)
    assert status == 401
    told = msgspec.json.decode(body)["error"]
    assert told["type"] == "authentication_error"
    assert "clocks" in told["message"]
    assert await provider.probe() == "the credential was refused (HTTP 401)"
    upstream.ahead_s = -60  # Within what is tolerated.
    assert (await asked(provider))[0] == 200


async def test_no_refusal_repeats_key_token_account_or_role(
    upstream: BedrockUpstream, egress: Egress
) -> None:
    key = upstream.new_access_key(is_temporary=True)
    provider = bedrock(upstream, egress, text_of(key))
    upstream.access_keys.clear()
    _, denied = await asked(provider)
    upstream.access_keys[key.access_key] = key
    for status, word, message in (
        (403, "AccessDeniedException", f"User: {ROLE} is not authorized to perform"),
        (400, "ValidationException", f"bad arn {ROLE}/x for {ACCOUNT} {key.token}"),
        (429, "ThrottlingException", f"Too many requests for {ACCOUNT}"),
    ):
        tree = {"__type": word, "message": message}
        upstream.answer_once(Answer(status=status, body=msgspec.json.encode(tree)))
        got, body = await asked(provider)
        assert got == status
        denied += body
    for own in (key.access_key, key.token or "", ACCOUNT, "gateway-of-a-bank", "arn:"):
        assert own.encode() not in denied


async def test_what_lies_around_it_is_found_replaced_and_missed_without_a_restart(
    upstream: BedrockUpstream, egress: Egress, around: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    monkeypatch.setattr(proofs, "LOOK_S", 0.0)
    provider = bedrock(upstream, egress, identity="ambient")
    assert provider.unavailable_reason == ""  # Nobody has looked.
    with pytest.raises(UpstreamUnreachable, match="no AWS credential was found"):
        await asked(provider)
    assert provider.unavailable_reason == "no AWS credential was found around it"
    assert upstream.connections == 0
    first, second = upstream.new_access_key(), upstream.new_access_key()
    put(around, first)
    assert (await asked(provider))[0] == 200
    assert provider.unavailable_reason == ""
    put(around, second)
    await provider.proof.renew()
    del upstream.access_keys[first.access_key]
    assert (await asked(provider))[0] == 200
    assert provider.has_proof


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"region": ""}, "region", "is needed of kind bedrock"),
        ({"region": "EU"}, "region", "is no region of a cloud"),
        ({"jurisdiction": "US"}, "region", "`eu-central-1` is not in `US`, or not only there"),
        ({"region": "eu-west-2"}, "region", "is not in `eu`"),
        ({"region": "eu-central-2"}, "region", "is not in `eu`"),
        ({"region": "global", "jurisdiction": "ours"}, "region", "cross_region"),
        ({"identity": "role"}, "identity", "must be one of credential, access_key, ambient"),
        ({"identity": "ambient"}, "credential", "means nothing beside"),
        ({"service": "bedrock-agent"}, "service", "must be one of bedrock-mantle, bedrock-runtime"),
        ({"credential": Secret("only-one")}, "credential", "is no ID:SECRET"),
        (
            {"base_url": "https://bedrock-mantle.us-east-1.api.aws"},
            "base_url",
            "is in us-east-1, and `region` says eu-central-1",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_at_the_start(
    changes: dict[str, object], key: str, reason: str
) -> None:
    config = ProviderConfig(
        name="claude",
        kind="bedrock",
        jurisdiction="eu",
        credential=Secret(f"{secrets.token_hex(8)}:{secrets.token_hex(8)}"),
        credential_is_named=True,
        region="eu-central-1",
        identity="access_key",
    )
    with pytest.raises(ConfigurationInvalid) as caught:
        build_provider(msgspec.structs.replace(config, **changes), Egress())
    assert caught.value.key == key
    assert reason in caught.value.reason


async def test_its_addresses_are_the_regions_own(egress: Egress) -> None:
    hosts = {}
    for service in ("", "bedrock-mantle", "bedrock-runtime"):
        config = ProviderConfig(
            "c", "bedrock", "ch", region="eu-central-2", service=service, credential=Secret("k")
        )
        provider = build_provider(config, egress)
        hosts[service] = provider.endpoint.origin  # type: ignore[attr-defined]
    mantle = "https://bedrock-mantle.eu-central-2.api.aws:443"
    assert hosts[""] == hosts["bedrock-mantle"] == mantle
    assert hosts["bedrock-runtime"] == "https://bedrock-runtime.eu-central-2.amazonaws.com:443"


def test_models_that_may_be_answered_elsewhere_are_refused_unless_that_is_permitted() -> None:
    config = ProviderConfig(
        "c", "bedrock", "eu", region="eu-central-1", credential=Secret("k"), base_url=""
    )
    strict = build_provider(config, Egress())
    wide = build_provider(msgspec.structs.replace(config, cross_region=True), Egress())
    ours = build_provider(
        msgspec.structs.replace(config, cross_region=True, jurisdiction="ours"), Egress()
    )

    def fits(provider: object, model: str) -> bool:
        return provider.check_model(model) == ""  # type: ignore[attr-defined, no-any-return]

    assert fits(strict, "anthropic.claude-opus-5-5")
    for span in ("eu", "us", "global", "sa", "uk", "me", "emea"):
        assert not fits(strict, f"{span}.anthropic.claude-opus-5-5")
    assert fits(wide, "eu.anthropic.claude-opus-5-5-v1:0")
    assert not fits(wide, "us.anthropic.claude-opus-5-5")
    assert not fits(wide, "global.anthropic.claude-opus-5-5")
    assert not fits(wide, "uk.anthropic.claude-opus-5-5")
    assert not fits(wide, "emea.anthropic.claude-opus-5-5")  # Who knows where that is.
    assert fits(ours, "global.anthropic.claude-opus-5-5")
    assert fits(ours, "emea.anthropic.claude-opus-5-5")
    for provider in (strict, wide, ours):
        assert not fits(provider, f"arn:aws:bedrock:eu-central-1:{ACCOUNT}:inference-profile/x")
        # A profile of one's own: its id says nothing of where it leads.
        assert not fits(provider, "k3x9q0z7w2ab")
        assert not fits(provider, "../x")


async def test_nothing_goes_to_it_or_to_its_chain_outside_of_the_clearance(
    upstream: BedrockUpstream, egress: Egress, around: Path
) -> None:
    provider = bedrock(upstream, egress, identity="ambient")
    with pytest.raises(SovereigntyViolation):
        await provider.open(msgspec.structs.replace(call_of(), clearance=frozenset({"us"})))
    assert (upstream.connections, provider.unavailable_reason) == (0, "")
    assert not around.exists()


@pytest.mark.parametrize(
    ("tree", "status"),
    [
        ({"message": "The security token included in the request is expired"}, 401),
        ({"message": "Forbidden"}, 403),
        ({"__type": "AccessDeniedException", "message": "for this credential"}, 403),
        ({"__type": "ExpiredTokenException", "message": "x"}, 401),
        ({"__type": "ServiceQuotaExceededException", "message": "x"}, 429),
    ],
)
async def test_a_refusal_means_what_amazon_means_whatever_its_status(
    upstream: BedrockUpstream, egress: Egress, tree: dict[str, str], status: int
) -> None:
    provider = bedrock(upstream, egress, upstream.new_api_key(), "credential")
    upstream.answer_once(Answer(status=403, body=msgspec.json.encode(tree)))
    assert (await asked(provider))[0] == status


async def test_a_long_body_is_hashed_beside_the_loop(
    upstream: BedrockUpstream, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    signed = SignedProof._signed

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return signed(*given)

    monkeypatch.setattr(SignedProof, "_signed", watched)
    provider = bedrock(upstream, egress, text_of(upstream.new_access_key()))
    await asked(provider)
    await asked(provider, call_of(system="x" * LONG_BYTES))
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False]


async def test_a_connection_test_knows_that_what_is_found_around_it_is_a_proof(
    upstream: BedrockUpstream, egress: Egress, around: Path
) -> None:
    async def told(_: object) -> None:
        """Nobody watches."""

    provider = bedrock(upstream, egress, identity="ambient")
    key = upstream.new_access_key()
    put(around, key)
    good = await Checker(provider, None, DIALECTS, SystemClock()).run(told)
    upstream.access_keys.clear()
    bad = await Checker(provider, None, DIALECTS, SystemClock()).run(told)
    assert [(step.name, step.code) for step in good.steps][2] == ("credential", "ok")
    assert [(step.name, step.code) for step in bad.steps][2] == ("credential", "denied")


async def test_the_runtime_endpoint_is_signed_for_by_its_own_name(egress: Egress) -> None:
    async with BedrockUpstream(service="bedrock") as upstream:
        key = text_of(upstream.new_access_key())
        config = bedrock(upstream, egress, key).config
        runtime = build_provider(msgspec.structs.replace(config, service="bedrock-runtime"), egress)
        assert (await asked(runtime))[0] == 200
        assert (await asked(bedrock(upstream, egress, key)))[0] == 401
