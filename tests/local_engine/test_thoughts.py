"""A grammar is about the answer: what a model thinks before is free, and ends in one way only."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_engine.sampling_params import Thinking
from local_engine.text.grammar import GrammarCompiler, grammar_of_choices
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import Served, client_of, events, served


pytestmark = pytest.mark.anyio
OPEN, END = 1536, 1537
MESSAGES = [{"role": "user", "content": "hello"}]
THINKING = (
    "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% elif opens is not false %}<think>\n{% endif %}"
)
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern"]}},
    "required": ["city"],
    "additionalProperties": False,
}
CALLED = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": CITY}}],
    "tool_choice": "required",
}
# Each token is the end of reasoning with one chance in a few.
DRAWN = {"temperature": 1, "logit_bias": {str(END): 6}, "max_tokens": 200}


def write_thinker(directory: Path, *, has_tokens: bool = True) -> None:
    write_model_directory(directory, tiny_spec(vocab_size=1538, context_window=512))
    (directory / "chat_template.jinja").write_text(THINKING)
    if has_tokens:
        path = directory / "tokenizer.json"
        content = json.loads(path.read_text())
        names = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        content["added_tokens"] += [
            {"id": OPEN, "content": "<think>", "special": False, **names},
            {"id": END, "content": "</think>", "special": False, **names},
        ]
        path.write_text(json.dumps(content))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Served]:
    write_thinker(tmp_path / "tiny")
    async with served(tmp_path / "tiny") as running:
        yield running


@pytest.fixture
async def client(place: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(place.engine) as found:
        yield found


async def chat(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    body = {"model": "tiny", "messages": MESSAGES, "return_token_ids": True, **DRAWN, **fields}
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


async def test_a_model_that_thinks_answers_by_the_schema_after_it_has_thought(
    client: httpx.AsyncClient,
) -> None:
    thoughts = set()
    for seed in range(8):
        choice = await chat(client, guided_json=CITY, seed=seed)
        message = choice["message"]
        assert choice["finish_reason"] == "stop"
        assert json.loads(message["content"])["city"] in {"Rome", "Bern"}
        assert choice["token_ids"].count(END) == 1
        thoughts.add(message.get("reasoning_content"))
    assert len(thoughts) > 3
    assert not any("{" in str(each)[:1] for each in thoughts)


async def test_a_call_that_has_to_be_made_is_made_after_thinking(
    client: httpx.AsyncClient,
) -> None:
    choice = await chat(client, **CALLED, seed=1)
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"])["city"] in {"Rome", "Bern"}
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"]


async def test_a_stream_of_it_says_what_the_whole_answer_says(client: httpx.AsyncClient) -> None:
    for asked in ({"guided_json": CITY}, CALLED):
        whole = (await chat(client, **asked, seed=1))["message"]
        body = {"model": "tiny", "messages": MESSAGES, **DRAWN, **asked, "seed": 1, "stream": True}
        response = await client.post("/v1/chat/completions", json=body)
        deltas = [event["choices"][0]["delta"] for event in events(response.text)]
        for name in ("content", "reasoning_content"):
            told = "".join(delta.get(name) or "" for delta in deltas)
            assert told == (whole.get(name) or "")
        calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
        assert calls == [call["function"] for call in whole.get("tool_calls", ())]


async def test_a_template_that_opens_no_thoughts_leaves_them_to_the_model(
    client: httpx.AsyncClient,
) -> None:
    asked = {"guided_choice": ["yes", "no"], "chat_template_kwargs": {"opens": False}}
    plain = await chat(client, **asked, temperature=0, logit_bias={str(OPEN): -100})
    assert plain["message"]["content"] in {"yes", "no"}
    assert "reasoning_content" not in plain["message"]
    bias = {str(OPEN): 9, str(END): 6}
    opened = await chat(client, **asked, seed=2, logit_bias=bias)
    assert opened["token_ids"][0] == OPEN
    assert opened["message"]["content"] in {"yes", "no"}
    assert opened["message"]["reasoning_content"]


async def test_who_wants_no_thoughts_is_answered_at_once(client: httpx.AsyncClient) -> None:
    for wish in (
        {"reasoning_effort": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ):
        choice = await chat(client, guided_choice=["yes", "no"], **wish)
        assert choice["message"]["content"] in {"yes", "no"}
        assert not {OPEN, END} & set(choice["token_ids"])


async def test_no_answer_ends_within_its_thoughts(client: httpx.AsyncClient) -> None:
    """It would look like a whole one, and have nothing of what was asked for."""
    bias = {"1": 30, str(END): 20}
    choice = await chat(client, guided_json=CITY, temperature=0, logit_bias=bias)
    assert choice["finish_reason"] == "stop"
    assert json.loads(choice["message"]["content"])["city"] in {"Rome", "Bern"}


async def test_thoughts_that_use_up_the_length_leave_no_answer(client: httpx.AsyncClient) -> None:
    choice = await chat(client, guided_json=CITY, logit_bias={str(END): -100}, max_tokens=9)
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"]


async def test_without_a_token_for_the_end_a_grammar_is_refused_by_name(tmp_path: Path) -> None:
    write_thinker(tmp_path / "tiny", has_tokens=False)
    async with served(tmp_path / "tiny") as running, client_of(running.engine) as client:
        body = {"model": "tiny", "messages": MESSAGES, "guided_choice": ["yes"], "max_tokens": 9}
        refused = await client.post("/v1/chat/completions", json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "invalid_grammar")
        assert error["param"] == "guided_choice"
        body["reasoning_effort"] = "none"
        answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "yes"


def test_other_tokens_do_not_spell_the_end(tmp_path: Path) -> None:
    """Whoever reads the answer would take what follows for the content, and no grammar would."""
    write_thinker(tmp_path / "tiny")
    text = (tmp_path / "tiny" / "tokenizer.json").read_text()
    compiler = GrammarCompiler(text, 1538, (1,))
    spelt = [compiler._tokenizer.decode_bytes([each]) for each in range(1538)]
    grammar = compiler.compile(grammar_of_choices(["yes"]), None, Thinking(ends_with=END))
    (closing,) = (each for each, written in enumerate(spelt) if written == b">")
    assert grammar.allowed()[closing]
    for letter in b"a</think":
        token = spelt.index(bytes([letter]))
        assert grammar.allowed()[token]
        grammar.accept(token)
    allowed = grammar.allowed()
    forbidden = [1, *(each for each, written in enumerate(spelt) if written[:1] == b">")]
    assert closing in forbidden
    assert [each for each in range(1538) if not allowed[each]] == forbidden
    grammar.accept(spelt.index(b"s"))
    assert grammar.allowed()[closing]
    grammar.accept(END)
    assert {spelt[each] for each in grammar.allowed().nonzero()[:, 0].tolist()} <= {
        b"y",
        b"ye",
        b"yes",
    }
