"""LiteLLM as a library, with the prefixes that choose a vendor's dialect."""

from typing import Any

import litellm
from pydantic import BaseModel

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int
    name: str


litellm.telemetry = False
TURNS: list[Any] = [
    {"role": "system", "content": words.SYSTEM},
    {"role": "user", "content": words.QUESTION},
]
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FUNCTION = {"name": "age_of", "description": words.AGE_OF, "parameters": NAME}
TOOLS = [{"type": "function", "function": FUNCTION}]
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{words.PNG}"}}
SEEN = [{"role": "user", "content": [{"type": "text", "text": words.QUESTION}, PICTURE]}]
KEPT = {"type": "text", "text": words.LONG_SYSTEM, "cache_control": {"type": "ephemeral"}}
CACHED = [{"role": "system", "content": [KEPT]}, {"role": "user", "content": words.QUESTION}]


def completion(way: str, url: str, turns: Any = TURNS, **more: Any) -> Any:
    model, base = (words.CLAUDE, url) if way == "anthropic" else (words.GPT, f"{url}/v1")
    return litellm.completion(
        model=f"{way}/{more.pop('model', model)}",
        messages=turns,
        api_base=base,
        api_key=words.KEY,
        **more,
    )


def text(made: Any) -> object:
    return made.choices[0].message.content


def streamed(way: str, url: str) -> object:
    options = {"include_usage": True}
    pieces = completion(way, url, stream=True, stream_options=options)
    return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)


def tools(way: str, url: str, **more: Any) -> object:
    first = completion(way, url, tools=TOOLS, **more).choices[0].message
    given = [
        {"role": "tool", "tool_call_id": call.id, "content": "120"} for call in first.tool_calls
    ]
    turns = [*TURNS, first.model_dump(), *given]
    return text(completion(way, url, turns, tools=TOOLS, **more))


def of(name: str, way: str) -> dict[str, Ask]:
    return {
        f"{name}-plain": lambda url: text(completion(way, url)),
        f"{name}-streamed": lambda url: streamed(way, url),
        f"{name}-tools": lambda url: tools(way, url, tool_choice="auto"),
        f"{name}-tools-parallel": lambda url: tools(way, url, parallel_tool_calls=True),
        f"{name}-json-schema": lambda url: text(completion(way, url, response_format=Fact)),
        f"{name}-json-object": lambda url: text(
            completion(way, url, response_format={"type": "json_object"})
        ),
        f"{name}-picture": lambda url: text(completion(way, url, SEEN)),
        f"{name}-cached": lambda url: text(completion(way, url, CACHED)),
        f"{name}-thinking-tools": lambda url: tools(way, url, reasoning_effort="low"),
        f"{name}-limits": lambda url: text(
            completion(way, url, max_tokens=200, user="u-17", temperature=1)
        ),
        f"{name}-retried": lambda url: text(completion(way, url, num_retries=1)),
    }


def responses(url: str, **more: Any) -> Any:
    return litellm.responses(
        model=f"openai/{words.GPT}",
        input=words.QUESTION,
        api_base=f"{url}/v1",
        api_key=words.KEY,
        **more,
    )


SHAPES: dict[str, Ask] = {
    **of("chat", "openai"),
    **of("messages", "anthropic"),
    "responses-plain": lambda url: responses(url).output[-1].content[0].text,
    "responses-tools": lambda url: responses(url, tools=[{"type": "function", **FUNCTION}]),
    "responses-streamed": lambda url: len(list(responses(url, stream=True))),
    "embeddings-of-texts": lambda url: (
        litellm.embedding(
            model=f"openai/{words.EMBEDDER}",
            input=[words.QUESTION, words.SECOND],
            api_base=f"{url}/v1",
            api_key=words.KEY,
        ).data
    ),
}

if __name__ == "__main__":
    words.run(("litellm", "openai"), SHAPES)
