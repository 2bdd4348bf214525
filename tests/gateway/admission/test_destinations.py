"""Places that a request names: tool servers are asked of one list, what is fetched of another."""

from typing import Any

import pytest

from gateway.admission.destinations import check_destinations
from gateway.configuration.settings import RequestSettings
from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest
from tests.gateway.admission.test_bounds import request


SETTINGS = RequestSettings(media_hosts=("images.example",), tool_server_hosts=("tools.example",))


def server(host: str) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "x", "server_url": f"https://{host}/mcp"}


def at_the_top(host: str) -> ChatRequest:
    turn = {"role": "user", "content": "Hi"}
    return request("openai_responses", input=[turn], tools=[server(host)])


def of_messages(host: str) -> ChatRequest:
    named = {"type": "url", "url": f"https://{host}/mcp", "name": "x"}
    return request("anthropic_messages", mcp_servers=[named])


def brought(host: str) -> ChatRequest:
    item = {"type": "additional_tools", "role": "developer", "tools": [server(host)]}
    return request("openai_responses", input=[item, {"role": "user", "content": "Hi"}])


def in_a_namespace(host: str) -> ChatRequest:
    space = {"type": "namespace", "name": "s", "tools": [server(host)]}
    item = {"type": "additional_tools", "role": "developer", "tools": [space]}
    return request("openai_responses", input=[item, {"role": "user", "content": "Hi"}])


def of_another_kind(host: str) -> ChatRequest:
    item = {"type": "of_tomorrow", "output": [{"server_url": f"https://{host}/mcp"}]}
    return request("openai_responses", input=[item, {"role": "user", "content": "Hi"}])


def picture(host: str) -> ChatRequest:
    part = {"type": "input_image", "image_url": f"https://{host}/a.png"}
    return request("openai_responses", input=[{"role": "user", "content": [part]}])


@pytest.mark.parametrize(
    "made", [at_the_top, of_messages, brought, in_a_namespace, of_another_kind]
)
def test_a_tool_server_is_no_place_for_pictures_wherever_it_is_named(made: Any) -> None:
    check_destinations(made("tools.example"), SETTINGS)
    for host in ("images.example", "else.example"):
        with pytest.raises(FeatureUnsupported, match="tool servers"):
            check_destinations(made(host), SETTINGS)


def test_a_place_for_pictures_is_no_tool_server() -> None:
    check_destinations(picture("images.example"), SETTINGS)
    for host in ("tools.example", "else.example"):
        with pytest.raises(FeatureUnsupported, match="Send it inline"):
            check_destinations(picture(host), SETTINGS)


@pytest.mark.parametrize(
    "host",
    [
        *("images.example.evil.example", "evil.images.example", "images.example.", ""),
        *("images.example:444", "images.example@evil.example", "evil.example#@images.example"),
        *("evil.example\\@images.example", "images.example\\.evil.example", "images.example\n"),
    ],
)
def test_a_place_is_permitted_only_as_it_was_named(host: str) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        check_destinations(picture(host), SETTINGS)
    assert caught.value.parameter == "input[0].content[0].image_url"
    assert "evil" not in caught.value.message
