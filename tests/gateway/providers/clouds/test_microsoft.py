"""Claude at Microsoft Foundry and GPT at Azure OpenAI, by the kinds of the vendors' own APIs."""

from pathlib import Path

import anthropic
import msgspec
import openai
import pytest

from gateway.errors import ConfigurationInvalid
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.registry import build_provider
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "clouds.md"


class AzureUpstream(RecordingUpstream):
    """Believes keys in the headers where Microsoft's APIs look for them, and nothing else."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def answer_to(self, request: RecordedRequest) -> Answer:
        told = (request.headers.get("api-key"), request.headers.get("x-api-key"))
        return Answer() if self._key in told else Answer(status=401)


@pytest.mark.parametrize("section", ["foundry", "azure"])
async def test_the_providers_that_operations_shows_are_believed_as_the_vendors_clients_are(
    egress: Egress, section: str
) -> None:
    secret = make_secret()
    shown = PAGE.read_text().partition(f"[providers.{section}]\n")[2].partition("\n\n")[0]
    lines = dict(
        line.split(" = ", 1) for line in shown.splitlines() if not line.startswith("credential =")
    )
    named = {name: msgspec.json.decode(value) for name, value in lines.items()}
    path = named["base_url"].split(".com", 1)[1]
    async with AzureUpstream(secret.reveal()) as upstream:
        config = ProviderConfig(
            name=section,
            kind=named["kind"],
            jurisdiction=HOME,
            base_url=upstream.url + path,
            credential=secret,
            credential_header=named["credential_header"],
        )
        provider = build_provider(config, egress)
        reply = await provider.open(make_call())
        assert reply.status == 200
        await reply.read()
        await reply.close()
        if section == "foundry":
            foundry = anthropic.AsyncAnthropicFoundry(
                api_key=secret.reveal(), base_url=upstream.url + path, max_retries=0
            )
            await foundry.messages.create(model="fake-model", max_tokens=5, messages=[])
            await foundry.close()
        else:
            azure = openai.AsyncAzureOpenAI(
                api_key=secret.reveal(),
                base_url=upstream.url + path,
                api_version="v1",
                max_retries=0,
            )
            await azure.responses.create(model="fake-model", input="")
            await azure.close()
        ours, theirs = upstream.requests
        asked = "/chat/completions" if section == "azure" else "/v1/messages"
        assert ours.path == path + asked
        assert theirs.path.startswith(path)
        header = named["credential_header"]
        assert ours.headers[header] == theirs.headers[header] == secret.reveal()
        assert "authorization" not in ours.headers
        upstream.answer_once(Answer(status=400, body=b"key " + secret.reveal().encode()))
        refused = await provider.open(make_call())
        assert await refused.read() == b"key [removed]"
        await refused.close()


async def test_a_credential_stands_in_no_header_that_is_not_known_for_one(egress: Egress) -> None:
    config = ProviderConfig("o", "openai", HOME, credential_header="x-evil")
    with pytest.raises(ConfigurationInvalid, match="must be one of authorization, api-key"):
        build_provider(config, egress)
