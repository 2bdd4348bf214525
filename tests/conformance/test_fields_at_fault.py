"""Which field of a request its target finds wrong: told to the caller who sent it, by its name."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from gateway.dialects.bodies.flaws import known_path
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.refusals import refusal_of
from gateway.errors import UpstreamRefused
from tests.faults.envelopes import LEAK
from tests.gateway.pool.test_exact import listening
from tests.local_engine.conftest import TOOL_TEMPLATE
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import served
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

TINY = "tiny-house"
REAL_ENGINE = """
[inspection]
deadline_s = 5.0
[providers.real]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
[targets.tiny-house]
provider = "real"
model = "tiny"
catalogue = "in-house"
"""
QUESTION: Any = [{"role": "user", "content": "Good morning"}]
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": 7}}}}
IN_CHAT: dict[str, dict[str, Any]] = {
    "logit_bias": {"logit_bias": {"5": 500}},
    "stop": {"stop": ["x" * 1000]},
    "seed": {"seed": 2**64},
    "min_p": {"extra_body": {"min_p": 7}},
    "stop_token_ids": {"extra_body": {"stop_token_ids": list(range(600))}},
    "repetition_penalty": {"extra_body": {"repetition_penalty": 11}},
    "tools": {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"},
}


@pytest.fixture(scope="module")
async def house(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, shared_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    """A gateway in front of the engine of this repository, on a socket of its own."""
    folder = tmp_path_factory.mktemp("house")
    write_model_directory(folder / "tiny", tiny_spec(context_window=2048))
    (folder / "tiny" / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    database = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    async with served(folder / "tiny") as place, listening(place) as url:
        more = REAL_ENGINE.format(url=url)
        async with RunningGateway(folder, database, shared_upstreams, more=more) as running:
            yield running


@pytest.fixture(scope="module")
async def key_of_house(house: RunningGateway) -> str:
    return await house.issue_key()


@pytest.fixture
async def gpt(house: RunningGateway, key_of_house: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{house.url}/v1", api_key=key_of_house, max_retries=0
    ) as client:
        yield client


@pytest.mark.parametrize("field", IN_CHAT)
@pytest.mark.parametrize("stream", [False, True])
async def test_rule_50_what_the_engine_refuses_is_named_to_openais_client(
    gpt: openai.AsyncOpenAI, field: str, *, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await gpt.chat.completions.create(
            model=TINY, messages=QUESTION, max_tokens=5, stream=stream, **IN_CHAT[field]
        )

    assert caught.value.param == field
    assert caught.value.code in {"invalid_value", "invalid_grammar"}
    assert LEAK.search(str(caught.value.body)) is None


async def test_rule_50_a_field_of_ours_is_never_blamed_on_the_caller(
    gpt: openai.AsyncOpenAI,
) -> None:
    """The engine is asked in chat completions: `messages` is no field of who sends `input`."""
    long = "wgfhbd " * 700  # More tokens in this small vocabulary than anybody would guess.
    with pytest.raises(openai.BadRequestError) as chat:
        await gpt.chat.completions.create(
            model=TINY, messages=[{"role": "user", "content": long}], max_tokens=5
        )
    with pytest.raises(openai.BadRequestError) as response:
        await gpt.responses.create(model=TINY, input=long, max_output_tokens=16)

    for caught in (chat, response):
        assert caught.value.code == "context_length_exceeded"
    assert (chat.value.param, response.value.param) == ("messages", None)


async def test_rule_50_a_response_names_the_field_that_both_dialects_have(
    gpt: openai.AsyncOpenAI,
) -> None:
    tool: Any = {"type": "function", "strict": False, **FUNCTION}
    with pytest.raises(openai.BadRequestError) as caught:
        await gpt.responses.create(
            model=TINY, input="Hi", max_output_tokens=16, tools=[tool], tool_choice="required"
        )

    assert caught.value.param == "tools"


async def test_rule_50_anthropics_client_reads_of_the_field_in_the_message(
    house: RunningGateway, key_of_house: str
) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=house.url, api_key=key_of_house, max_retries=0
    ) as claude:
        with pytest.raises(anthropic.BadRequestError, match="stop string") as caught:
            await claude.messages.create(
                model=TINY, messages=QUESTION, max_tokens=5, stop_sequences=["x" * 1000]
            )
    error: Any = caught.value.body
    assert error["error"].keys() == {"type", "message"}


@pytest.mark.parametrize(
    ("told", "param"),
    [
        ("messages[0].content", "messages[0].content"),
        ("temperature", "temperature"),
        ("messages.0.content", "messages.0.content"),
        ("messages[0].inner_name", "messages[0].*"),
        ("x-internal-routing", None),
        ("store", None),
        ("messages[0].content at host.internal", None),
        ("sk-abcdef123456", None),
        ("/srv/models/llama", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
async def test_rule_61_a_vendors_field_is_told_if_the_caller_sent_it_in_words_of_the_dialect(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, told: object, param: str | None
) -> None:
    error = {"message": "This is wrong.", "type": "invalid_request_error", "param": told}
    refusal = msgspec.json.encode({"error": error})
    upstreams.openai.answer_once(Answer(status=400, body=refusal))

    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model=GPT_TARGET, messages=QUESTION, temperature=1)

    assert (caught.value.param, caught.value.code) == (param, "invalid_request_error")


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_rule_61_what_is_not_the_callers_fault_names_no_field(status: int) -> None:
    chat = DIALECTS["openai_chat"]
    request = chat.decode_request(
        msgspec.json.encode({"model": "auto", "messages": QUESTION}), "req_1"
    )
    raw = b'{"error": {"message": "No.", "param": "model"}}'

    error = refusal_of(request, chat, status, raw, None)

    assert isinstance(error, UpstreamRefused)
    assert error.parameter is None
    assert refusal_of(request, chat, 400, raw, None).parameter == "model"


async def test_rule_50_behind_a_kept_history_a_place_in_the_input_is_not_told(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    """The caller's first item is the upstream's third."""
    error = {"message": "This is wrong.", "param": "input[2].content"}
    refusal = Answer(status=400, body=msgspec.json.encode({"error": error}))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        made = await client.responses.create(model=GPT_TARGET, input="Hi")
        upstreams.openai.answer_once(refusal, refusal)
        with pytest.raises(openai.BadRequestError) as continued:
            await client.responses.create(
                model=GPT_TARGET, input="Hi", previous_response_id=made.id
            )
        with pytest.raises(openai.BadRequestError) as alone:
            await client.responses.create(model=GPT_TARGET, input="Hi")

    assert (continued.value.param, alone.value.param) == ("input", "input[2].content")


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ("a" * 65, ""),
        ("messages[1234567]", ""),
        ("messages." + "content." * 40, ""),
        ("messages[0]content", ""),
        ("tools[0].parameters.Müller", ""),
        ("tools[0].parameters.salary[3].type", "tools[0].parameters.*[3].type"),
        ("min_p", "min_p"),
    ],
)
def test_paths_that_others_tell_have_our_form_or_none(told: str, path: str) -> None:
    assert known_path(told) == path
