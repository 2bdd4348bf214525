"""Grammars over HTTP: followed to the end whatever else is asked, or refused by name."""

import asyncio
import json
import threading
from typing import Any

import pytest
from llguidance import LLMatcher

from local_engine.serve.engine import Engine
from local_engine.text import grammar
from tests.local_engine.models import DEMO_MODEL
from tests.local_engine.served import client_of, served


ENDLESS = {"type": "array", "minItems": 10**9, "items": {"type": "null"}}
CHOICES = ["y", "n"]
pytestmark = pytest.mark.anyio


async def complete(
    engine: Engine, headers: Any = None, **fields: Any
) -> tuple[int, dict[str, Any]]:
    asked = {"model": "tiny", "prompt": "Is it?", "temperature": 0, "max_tokens": 40, **fields}
    async with client_of(engine) as client:
        response = await client.post("/v1/completions", json=asked, headers=headers)
    return response.status_code, response.json()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "wish",
    [{"min_tokens": 20}, {"bad_words": CHOICES}, {"ignore_eos": True}],
    ids=lambda wish: next(iter(wish)),
)
async def test_a_grammar_is_followed_where_nothing_else_is_left(
    wish: dict[str, Any], temperature: float
) -> None:
    async with served(DEMO_MODEL) as running:
        status, answer = await complete(
            running.engine,
            guided_choice=CHOICES,
            temperature=temperature,
            return_token_ids=True,
            **wish,
        )
        assert status == 200
        (choice,) = answer["choices"]
        ends = running.engine.ready.eos_token_ids
        written = [each for each in choice["token_ids"] if each not in ends]
        assert running.engine.tokenizer.decode_with_special(written) == choice["text"]
        assert choice["text"] in CHOICES


async def test_a_forbidden_word_is_not_written_where_a_grammar_leaves_another() -> None:
    async with served(DEMO_MODEL) as running:
        for word, other in (CHOICES, CHOICES[::-1]):
            fields = {"guided_choice": CHOICES, "bad_words": [word]}
            _, answer = await complete(running.engine, **fields)
            assert answer["choices"][0]["text"] == other


@pytest.mark.parametrize(
    ("stop", "shown", "stopped_by"),
    [
        (["\U0001f98a"], "n", "\U0001f98a"),
        (["\u00e9"], "n\U0001f98a\U0001f98a", "\u00e9"),
        (["\u00e9", "\U0001f98a\U0001f98a"], "n", "\U0001f98a\U0001f98a"),
        (["\U0001f98a\u00e9", "n\U0001f98a\U0001f98a\u00e9"], "", "n\U0001f98a\U0001f98a\u00e9"),
        (["\U0001f98a\U0001f98a\U0001f98a"], "n\U0001f98a\U0001f98a\u00e9", None),
    ],
)
async def test_a_stop_string_of_many_tokens_ends_before_its_first_character(
    stop: list[str], shown: str, stopped_by: str | None
) -> None:
    async with served(DEMO_MODEL) as running:
        text = "n\U0001f98a\U0001f98a\u00e9"
        _, answer = await complete(running.engine, guided_choice=[text], stop=stop)
    (choice,) = answer["choices"]
    assert (choice["text"], choice["stop_reason"]) == (shown, stopped_by)


async def test_a_replacement_character_that_was_meant_is_written_and_stops() -> None:
    async with served(DEMO_MODEL) as running:
        text = "n\ufffd\ufffd"
        _, answer = await complete(running.engine, guided_choice=[text])
        assert answer["choices"][0]["text"] == text
        _, answer = await complete(running.engine, guided_choice=[text], stop=["\ufffd"])
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("n", "stop")
        assert choice["stop_reason"] == "\ufffd"


async def test_a_grammar_that_cannot_be_followed_any_further_is_no_finished_answer() -> None:
    async with served(DEMO_MODEL) as running:
        fields = {"guided_json": ENDLESS, "max_tokens": 9}
        (status, refused), (_, other) = await asyncio.gather(
            complete(running.engine, **fields), complete(running.engine, max_tokens=30)
        )
        assert status == 400
        assert refused["error"]["code"] == "invalid_grammar"
        assert refused["error"]["param"] == "guided_json"
        assert other["choices"][0]["finish_reason"] in {"stop", "length"}
        assert other == {**(await complete(running.engine, max_tokens=30))[1], **_made(other)}
        stats = running.engine.stats()
        assert stats.num_free_blocks == stats.num_blocks
        assert running.scheduler.num_running == 0


def _made(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("id", "created")}


async def test_a_stream_whose_grammar_fails_ends_with_the_error_and_without_done() -> None:
    async with served(DEMO_MODEL) as running, client_of(running.engine) as client:
        asked = {"model": "tiny", "prompt": "x", "guided_json": ENDLESS, "stream": True}
        response = await client.post("/v1/completions", json=asked)
    events = [line for line in response.text.split("\n\n") if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "invalid_grammar"
    assert "[DONE]" not in response.text


async def test_a_compiled_grammar_is_met_again_in_its_own_group_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_compiled = 0

    def counting(*arguments: Any, **fields: Any) -> LLMatcher:
        nonlocal num_compiled
        num_compiled += 1
        return LLMatcher(*arguments, **fields)

    async with served(DEMO_MODEL) as running:
        counting.grammar_from_lark = LLMatcher.grammar_from_lark  # type: ignore[attr-defined]
        monkeypatch.setattr(grammar, "LLMatcher", counting)

        async def compiles(tenant: str = "", data_class: str = "") -> int:
            before = num_compiled
            headers = {"x-gatewright-tenant": tenant, "x-gatewright-data-class": data_class}
            status, _ = await complete(running.engine, headers, guided_choice=CHOICES)
            assert status == 200
            return num_compiled - before

        assert [await compiles("acme"), await compiles("acme")] == [1, 0]
        assert [await compiles("globex"), await compiles("acme", "S2")] == [1, 1]
        # Nobody says whose it is, or it must leave no trace: it is kept for nobody.
        assert [await compiles(), await compiles()] == [1, 1]
        assert [await compiles("acme", "S4"), await compiles("acme", "S4")] == [1, 1]
        assert await compiles("acme") == 0


async def test_a_grammar_that_nobody_waits_for_any_more_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    may_go_on = threading.Event()

    async with served(DEMO_MODEL) as running:
        compiling, worker = running.worker._grammars, running.worker
        assert compiling is not None
        compile_it = compiling.compile

        def slow(text: str, *more: Any) -> grammar.Grammar:
            compiled.append(text)
            may_go_on.wait()
            return compile_it(text, *more)

        monkeypatch.setattr(compiling, "compile", slow)
        asked = []
        for number, choice in enumerate("abc"):
            asked.append(asyncio.create_task(complete(running.engine, guided_choice=[choice])))
            while len(worker._compiling) <= number:
                await asyncio.sleep(0.005)
        asked[1].cancel()
        while len(worker._compiling) == 3:
            await asyncio.sleep(0.005)
        may_go_on.set()
        answers = [await asked[0], await asked[2]]
    assert [answer["choices"][0]["text"] for _, answer in answers] == ["a", "c"]
    assert len(compiled) == 2
