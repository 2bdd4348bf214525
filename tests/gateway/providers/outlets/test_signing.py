"""What web hooks are sent is signed as a vendor's own SDK verifies it."""

import base64
import secrets
from collections.abc import Mapping

import openai
import pytest

from gateway.clock import StoppedClock, SystemClock
from gateway.errors import ConfigurationInvalid
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.pause import Pause
from gateway.providers.outlets.signing import KEY_BYTES_MAX, KEY_BYTES_MIN, Signer
from gateway.providers.outlets.sinks import HttpSink
from gateway.providers.outlets.webhook import WebHook
from gateway.secrets.secret import Secret
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

CLOCK = SystemClock()
PATH = "/v1/chat/completions"


def new_key(length: int = 32) -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(length)).decode()}"


def signer(keys: str) -> Signer:
    return Signer("alerts", Secret(keys), CLOCK)


def verify(body: bytes, headers: Mapping[str, str], key: str) -> None:
    """Raises InvalidWebhookSignatureError unless the SDK takes it."""
    with openai.OpenAI(api_key="none", webhook_secret=key) as client:
        client.webhooks.verify_signature(body, headers)


async def sent(keys: str, *bodies: tuple[bytes, str]) -> list[RecordedRequest]:
    """What an upstream gets of bodies, each with what it is about."""
    egress = Egress()
    async with RecordingUpstream() as upstream:
        hook = WebHook("alerts", upstream.url + PATH, None, egress, signer=signer(keys))
        for body, about in bodies:
            upstream.answer(Answer(body=b"{}"))
            assert await hook.post(body, about)
        await egress.close()
        return upstream.requests


async def test_a_vendors_sdk_takes_what_is_sent_and_nothing_that_was_changed() -> None:
    key, body = new_key(), b'{"event":"budget.used"}'
    (request,) = await sent(key, (body, ""))

    verify(request.body, request.headers, key)
    for changed, headers, with_key in (
        (body + b" ", request.headers, key),
        (body, request.headers, new_key()),
        (body, {**request.headers, "webhook-id": "gw_another"}, key),
        (body, {**request.headers, "webhook-timestamp": str(CLOCK.utc_us() // 10**6 - 60)}, key),
    ):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            verify(changed, headers, with_key)


async def test_two_keys_sign_while_one_is_changed_for_the_other() -> None:
    former, new = new_key(), new_key()
    (request,) = await sent(f"{new} {former}\n", (b"{}", ""))

    verify(request.body, request.headers, former)
    verify(request.body, request.headers, new)


async def test_what_comes_again_has_the_id_that_it_had() -> None:
    told = [(b"80 %", "acme"), (b"81 %", "acme"), (b"80 %", "globex"), (b"80 %", ""), (b"81 %", "")]
    requests = await sent(new_key(), *told, told[-1])
    ids = [request.headers["webhook-id"] for request in requests]

    assert ids[0] == ids[1], "the same thing, with figures of a minute later"
    assert ids[4] == ids[5], "the same bytes, where nothing says what they are about"
    assert len({ids[0], ids[2], ids[3], ids[4]}) == 4


async def test_a_sink_signs_what_it_delivers() -> None:
    key, egress = new_key(), Egress()
    async with RecordingUpstream() as upstream:
        hook = WebHook("siem", upstream.url + PATH, None, egress, signer=signer(key))
        sink = HttpSink(hook, Pause(StoppedClock()))
        upstream.answer(Answer(body=b"{}"))
        assert await sink.deliver([{"organisation": "acme", "sequence": 1}])
        (request,) = upstream.requests
    await egress.close()

    verify(request.body, request.headers, key)


@pytest.mark.parametrize("length", [KEY_BYTES_MIN, KEY_BYTES_MAX])
def test_a_key_is_as_long_as_the_specification_says(length: int) -> None:
    signer(new_key(length))


@pytest.mark.parametrize(
    "keys",
    [
        *("", " ", new_key(KEY_BYTES_MIN - 1), new_key(KEY_BYTES_MAX + 1)),
        *(new_key().removeprefix("whsec_"), "whsec_", "whsec_not base64!", f"{new_key()}é"),
        f"whsec_{base64.b64encode(bytes(32)).decode()}",
        f"{new_key()} password",
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(keys: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        signer(keys)

    assert "signing_key" in refused.value.message
    assert not any(len(word) > 6 and word in refused.value.message for word in keys.split())
