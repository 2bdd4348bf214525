"""Providers at the recording clouds, and calls to them."""

import msgspec

from gateway.ports import Provider, UpstreamCall, UpstreamReply
from gateway.providers.clouds.provider import CloudProvider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.registry import build_provider
from gateway.secrets.secret import Secret
from tests.cloud_upstreams import PROJECT, BedrockUpstream, TokenServer, VertexUpstream
from tests.gateway.providers.samples import make_call, make_target


EU = "eu"
MODEL = "claude-opus-5-5"


def bedrock(
    upstream: BedrockUpstream, egress: Egress, credential: str = "", identity: str = "access_key"
) -> CloudProvider:
    return made(
        ProviderConfig(
            name="claude",
            kind="bedrock",
            jurisdiction=EU,
            base_url=upstream.url,
            credential=Secret(credential) if credential else None,
            credential_is_named=bool(credential),
            region="eu-central-1",
            identity=identity,
        ),
        egress,
    )


def vertex(
    upstream: VertexUpstream, egress: Egress, tokens: TokenServer | None = None
) -> CloudProvider:
    """With a service account's key for `tokens`; without, what is found around it."""
    return made(
        ProviderConfig(
            name="claude",
            kind="vertex",
            jurisdiction=EU,
            base_url=upstream.url,
            credential=Secret(tokens.key()) if tokens else None,
            credential_is_named=tokens is not None,
            region="europe-west4",
            project=PROJECT,
            identity="credential" if tokens else "ambient",
            token_url=tokens.token_url if tokens else "",
        ),
        egress,
    )


def made(config: ProviderConfig, egress: Egress) -> CloudProvider:
    provider = build_provider(config, egress)
    assert isinstance(provider, CloudProvider)
    return provider


def call_of(*, stream: bool = False, is_count: bool = False, **more: object) -> UpstreamCall:
    target = make_target("claude", EU)
    target = msgspec.structs.replace(target, model=MODEL)
    call = make_call(stream=stream, target=target, clearance=frozenset({EU}))
    body = {"model": MODEL, "max_tokens": 5, "messages": [], "stream": stream, **more}
    return msgspec.structs.replace(
        call, body=msgspec.json.encode(body), is_count=is_count, dialect="anthropic_messages"
    )


async def asked(provider: Provider, call: UpstreamCall | None = None) -> tuple[int, bytes]:
    reply: UpstreamReply = await provider.open(call or call_of())
    try:
        return reply.status, await reply.read()
    finally:
        await reply.close()
