"""What a program hears: an answer read from the objects of an official client."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import openai

from gateway.types import DialectName
from tests.conformance.round_trips.said import Call, Said


Heard = dict[str, Any]
Ask = dict[str, Any]
Headers = Mapping[str, str]

_CHAT_ENDS = {"end": "stop", "stop": "stop", "tool": "tool_calls", "length": "length"}
_CHAT_ENDS |= {"filter": "content_filter"}
_MESSAGES_ENDS = {"end": "end_turn", "stop": "stop_sequence", "tool": "tool_use"}
_MESSAGES_ENDS |= {"length": "max_tokens", "filter": "refusal"}
_RESPONSES_ENDS = {"length": "max_output_tokens", "filter": "content_filter"}


def meant(said: Said, caller: DialectName) -> Heard:
    """What a caller of this dialect has to hear of an answer, whoever gave it."""
    refusal = {"refusal": said.refusal} if said.refusal else {}
    text = said.text
    if caller == "anthropic_messages":
        end, text, refusal = _MESSAGES_ENDS[said.end], text or said.refusal, {}
    elif caller == "openai_chat":
        end = _CHAT_ENDS[said.end]
    else:
        end = "completed" if said.refusal else _RESPONSES_ENDS.get(said.end, "completed")
    return _heard(
        text=text,
        calls=[_called(call) for call in said.calls],
        thought=said.thought,
        end=end,
        tokens=(said.input_tokens, said.cached_tokens, said.output_tokens),
        likely=[[each.token, each.logprob, list(map(list, each.others))] for each in said.likely],
        **refusal,
    )


def _called(call: Call) -> list[Any]:
    return [call.tool_id, call.name, call.arguments]


def _heard(**told: Any) -> Heard:
    return {name: value for name, value in told.items() if value not in (None, "", [], ())}


def of_chat(made: Any) -> Heard:
    (choice,) = made.choices
    message = choice.message
    calls = message.tool_calls or ()
    usage, likely = made.usage, choice.logprobs
    return _heard(
        text=message.content,
        refusal=message.refusal,
        thought=getattr(message, "reasoning_content", None),
        calls=[[c.id, c.function.name, json.loads(c.function.arguments)] for c in calls],
        end=choice.finish_reason,
        tokens=_tokens_of_chat(usage) if usage is not None else None,
        likely=_likely(likely.content) if likely is not None else [],
    )


def _tokens_of_chat(usage: Any) -> tuple[int, int, int]:
    cached = usage.prompt_tokens_details.cached_tokens or 0
    return usage.prompt_tokens, cached, usage.completion_tokens


def _likely(tokens: Any) -> list[Any]:
    return [[t.token, t.logprob, [[o.token, o.logprob] for o in t.top_logprobs]] for t in tokens]


def of_message(made: Any) -> Heard:
    blocks, usage = made.content, made.usage
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    return _heard(
        text="".join(block.text for block in blocks if block.type == "text"),
        thought="".join(block.thinking for block in blocks if block.type == "thinking"),
        calls=[[b.id, b.name, b.input] for b in blocks if b.type == "tool_use"],
        end=made.stop_reason,
        tokens=(usage.input_tokens + cached + written, cached, usage.output_tokens),
    )


def of_response(made: Any) -> Heard:
    parts = [p for item in made.output if item.type == "message" for p in item.content]
    thoughts = [p for item in made.output if item.type == "reasoning" for p in item.summary]
    calls = [item for item in made.output if item.type == "function_call"]
    usage = made.usage
    why = made.incomplete_details.reason if made.incomplete_details is not None else made.status
    return _heard(
        text="".join(part.text for part in parts if part.type == "output_text"),
        refusal="".join(part.refusal for part in parts if part.type == "refusal"),
        thought="".join(part.text for part in thoughts),
        calls=[[c.call_id, c.name, json.loads(c.arguments)] for c in calls],
        end=why,
        tokens=(
            usage.input_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens,
        ),
        likely=[
            token
            for part in parts
            if part.type == "output_text"
            for token in _likely(part.logprobs or ())
        ],
    )


class Callers:
    """The official clients of one gateway, each as a program uses it, plain and streaming."""

    def __init__(self, url: str, key: str) -> None:
        at = {"api_key": key, "max_retries": 0}
        self._openai: Any = openai.AsyncOpenAI(base_url=f"{url}/v1", **at)  # type: ignore[arg-type]
        self._claude: Any = anthropic.AsyncAnthropic(base_url=url, **at)  # type: ignore[arg-type]
        self._sync_openai: Any = openai.OpenAI(base_url=f"{url}/v1", **at)  # type: ignore[arg-type]
        self._sync_claude: Any = anthropic.Anthropic(base_url=url, **at)  # type: ignore[arg-type]

    async def whole(self, caller: DialectName, ask: Ask) -> tuple[Heard, Headers]:
        """What is heard, and the headers."""
        resource, read = self._of(caller, self._openai, self._claude)
        raw = await resource.with_raw_response.create(**ask)
        made = raw.parse()
        if caller == "anthropic_messages":
            made = await made
        return read(made), raw.headers

    def whole_in_turn(self, caller: DialectName, ask: Ask) -> tuple[Heard, Headers]:
        """The same by the synchronous client."""
        resource, read = self._of(caller, self._sync_openai, self._sync_claude)
        raw = resource.with_raw_response.create(**ask)
        return read(raw.parse()), raw.headers

    def made_in_turn(self, caller: DialectName, ask: Ask) -> Any:
        """The client's own object."""
        return self._of(caller, self._sync_openai, self._sync_claude)[0].create(**ask)

    async def put_together(self, caller: DialectName, ask: Ask) -> Any:
        """The object that the client's own helper makes of a stream."""
        resource, _ = self._of(caller, self._openai, self._claude)
        async with resource.stream(**ask, **_beside(caller)) as stream:
            events = [event async for event in stream]
            return _put_together(caller, stream, events)

    async def streamed(self, caller: DialectName, ask: Ask) -> Heard:
        """What is heard in a stream."""
        _, read = self._of(caller, self._openai, self._claude)
        return read(await self.put_together(caller, ask))

    def streamed_in_turn(self, caller: DialectName, ask: Ask) -> Heard:
        """The same by the synchronous client."""
        resource, read = self._of(caller, self._sync_openai, self._sync_claude)
        with resource.stream(**ask, **_beside(caller)) as stream:
            return read(_put_together(caller, stream, list(stream)))

    def _of(self, caller: DialectName, gpt: Any, claude: Any) -> tuple[Any, Callable[[Any], Heard]]:
        if caller == "anthropic_messages":
            return claude.messages, of_message
        if caller == "openai_chat":
            return gpt.chat.completions, of_chat
        return gpt.responses, of_response

    async def close(self) -> None:
        await self._openai.close()
        await self._claude.close()
        self._sync_openai.close()
        self._sync_claude.close()


_ENDS = frozenset({"response.completed", "response.incomplete"})


def _put_together(caller: DialectName, stream: Any, events: list[Any]) -> Any:
    """Asked for the final one, a helper raises where an answer was cut at its limit."""
    if caller == "openai_responses":
        return next(event.response for event in events if event.type in _ENDS)
    if caller == "openai_chat":
        return stream.current_completion_snapshot
    return stream.current_message_snapshot


def _beside(caller: DialectName) -> Ask:
    return {"stream_options": {"include_usage": True}} if caller == "openai_chat" else {}
