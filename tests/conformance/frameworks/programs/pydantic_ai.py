"""pydantic-ai's models of both vendors, with each of its ways to structured output."""

import asyncio
from base64 import b64decode
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int
    name: str


OUTPUTS: dict[str, Any] = {
    "output-tool": Fact,
    "output-native-json": NativeOutput(Fact),
    "output-prompted-json": PromptedOutput(Fact),
}


def chat(url: str) -> Any:
    at = OpenAIProvider(base_url=f"{url}/v1", api_key=words.KEY)
    return OpenAIChatModel(words.GPT, provider=at)


def responses(url: str) -> Any:
    at = OpenAIProvider(base_url=f"{url}/v1", api_key=words.KEY)
    return OpenAIResponsesModel(words.GPT, provider=at)


def messages(url: str) -> Any:
    at = AnthropicProvider(base_url=url, api_key=words.KEY)
    return AnthropicModel(words.CLAUDE, provider=at)


def plain(model: Any, **more: Any) -> object:
    asked = more.pop("asked", words.QUESTION)
    agent: Any = Agent(model, system_prompt=words.SYSTEM, **more)
    return agent.run_sync(asked).output


def streamed(model: Any, **more: Any) -> object:
    agent: Any = Agent(model, instructions=words.SYSTEM, **more)

    async def go() -> object:
        async with agent.run_stream(words.QUESTION) as stream:
            return await stream.get_output()

    return asyncio.run(go())


def two_turns(model: Any, **more: Any) -> object:
    agent: Any = Agent(model, system_prompt=words.SYSTEM, **more)
    first = agent.run_sync(words.QUESTION)
    return agent.run_sync(words.SECOND, message_history=first.all_messages()).output


def of(name: str, make: Any) -> dict[str, Ask]:
    tools = [words.age_of]
    picture = [words.QUESTION, BinaryContent(b64decode(words.PNG), media_type="image/png")]
    shapes: dict[str, Ask] = {
        f"{name}-plain": lambda url: plain(make(url)),
        f"{name}-streamed": lambda url: streamed(make(url)),
        f"{name}-tools": lambda url: plain(make(url), tools=tools),
        f"{name}-tools-parallel-streamed": lambda url: streamed(make(url), tools=tools),
        f"{name}-picture": lambda url: plain(make(url), asked=picture),
        f"{name}-two-turns": lambda url: two_turns(make(url)),
        f"{name}-thinking-tools": lambda url: two_turns(
            make(url), tools=tools, model_settings={"thinking": "low"}
        ),
        f"{name}-retried": lambda url: plain(make(url)),
    }
    for how, output in OUTPUTS.items():
        shapes[f"{name}-{how}"] = lambda url, o=output: plain(make(url), output_type=o)  # type: ignore[misc]
    shapes[f"{name}-output-tool-and-tools"] = lambda url: plain(
        make(url), output_type=Fact, tools=tools
    )
    return shapes


CACHED = {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
SHAPES: dict[str, Ask] = {
    **of("chat", chat),
    **of("responses", responses),
    **of("messages", messages),
    "messages-cached": lambda url: two_turns(
        messages(url), tools=[words.age_of], model_settings=CACHED
    ),
    "chat-limits": lambda url: plain(
        chat(url), model_settings={"max_tokens": 200, "seed": 7, "parallel_tool_calls": False}
    ),
}

if __name__ == "__main__":
    words.run(("pydantic-ai-slim", "openai", "anthropic"), SHAPES)
