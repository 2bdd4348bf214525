"""What an upstream calls a call is kept if it is a word, and nothing else that it says there."""

import pytest

from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.endpoint import parse_endpoint
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio

ANTHROPIC = "req_011CVAJ8LcHDFjLT6FPRyo4Q"
AZURE = "982ef905-79f0-4a9e-9cfe-781287284bef"
AZURE_TOO = "eb2486b2-bf72-4bac-bb4f-f30df0a0540c"
LONGEST = "a" * 64


def route_to(upstream: RecordingUpstream, egress: Egress, headers: dict[str, str]) -> Route:
    return egress.route(parse_endpoint("fake", upstream.url, HOME), "/v1/chat/completions", headers)


async def ids_of(
    egress: Egress, upstream: RecordingUpstream, *said: tuple[str, str], **proof: str
) -> tuple[str, ...]:
    """What is known of a call that is answered with these headers."""
    upstream.answer_once(Answer(headers=said))
    sent = {name.replace("_", "-"): value for name, value in proof.items()}
    reply = await egress.open(route_to(upstream, egress, sent), make_call())
    try:
        assert b"Hello from the upstream." in await reply.read(), "it is answered all the same"
        return reply.upstream_ids
    finally:
        await reply.close()


@pytest.mark.parametrize(
    "name",
    [
        *("request-id", "x-request-id", "X-Request-ID"),
        *("apim-request-id", "x-amzn-RequestId", "x-litellm-call-id"),
    ],
)
async def test_each_vendors_name_for_it_is_known(
    egress: Egress, upstream: RecordingUpstream, name: str
) -> None:
    for said in (ANTHROPIC, AZURE, LONGEST, "a", "1a", "a.b:c_d-e"):
        assert await ids_of(egress, upstream, (name, said)) == (said,)
    assert await ids_of(egress, upstream) == (), "of another reply on the same connection"


async def test_of_several_names_the_first_two_are_kept_each_once(
    egress: Egress, upstream: RecordingUpstream
) -> None:
    both = ("apim-request-id", AZURE), ("x-request-id", AZURE_TOO)
    assert await ids_of(egress, upstream, *both) == (AZURE, AZURE_TOO)
    assert await ids_of(egress, upstream, *both, ("request-id", ANTHROPIC)) == (AZURE, AZURE_TOO)
    same = ("x-request-id", AZURE), ("request-id", AZURE)
    assert await ids_of(egress, upstream, *same) == (AZURE,), "as Gatewright itself says it"
    flawed = ("x-request-id", "a b"), ("request-id", AZURE)
    assert await ids_of(egress, upstream, *flawed) == (AZURE,)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "a b",
        "ravi@example.com",
        "<b>bold</b>",
        "../../etc",
        "a/b",
        "-a",
        "_a",
        "a=b",
        "a,b",
        '{"role":"user"}',
        "überall",
        "a\tb",
        "1",
        "078-05-1120",
        "98765.43210",
        "a" * 65,
        "a" * 30_000,
        ", " * 12_000,
    ],
    ids=lambda said: repr(said[:12]),
)
async def test_what_is_no_word_is_dropped(
    egress: Egress, upstream: RecordingUpstream, said: str
) -> None:
    assert await ids_of(egress, upstream, ("x-request-id", said)) == ()


async def test_no_more_is_looked_at_than_a_few(egress: Egress, upstream: RecordingUpstream) -> None:
    many = ", ".join(["no word"] * 9 + [ANTHROPIC])
    assert await ids_of(egress, upstream, ("x-request-id", many)) == ()


@pytest.mark.parametrize("name", ["authorization", "api_key", "x_api_key"])
async def test_what_proves_us_is_nobodys_name_for_a_call(
    egress: Egress, upstream: RecordingUpstream, name: str
) -> None:
    secret = make_secret().reveal()
    proof = {name: f"Bearer {secret}" if name == "authorization" else secret}
    for said in (secret, f"key-{secret}"):
        assert await ids_of(egress, upstream, ("x-request-id", said), **proof) == ()
    two = ("x-request-id", AZURE), ("request-id", secret)
    assert await ids_of(egress, upstream, *two, **proof) == (), "whoever repeats it is not heard"
    assert await ids_of(egress, upstream, ("x-request-id", AZURE), **proof) == (AZURE,)
