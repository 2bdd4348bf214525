"""OpenAI's Agents SDK, over chat completions and over responses."""

import asyncio
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int
    name: str


set_tracing_disabled(True)
PICTURE: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": words.QUESTION},
            {
                "type": "input_image",
                "detail": "auto",
                "image_url": f"data:image/png;base64,{words.PNG}",
            },
        ],
    }
]


def agent(model: Any, url: str, **more: Any) -> Any:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=words.KEY)
    made = model(words.GPT, client)
    others = [
        Agent(name=name, instructions=words.SYSTEM, model=made) for name in more.pop("handoffs", ())
    ]
    return Agent(name="Guide", instructions=words.SYSTEM, model=made, handoffs=others, **more)


def ran(made: Any, asked: Any = words.QUESTION) -> object:
    return Runner.run_sync(made, asked, max_turns=4).final_output


def streamed(made: Any) -> object:
    async def go() -> object:
        result = Runner.run_streamed(made, words.QUESTION, max_turns=4)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(go())


def two_turns(made: Any) -> object:
    first = Runner.run_sync(made, words.QUESTION, max_turns=4)
    turns = [*first.to_input_list(), {"role": "user", "content": words.SECOND}]
    return ran(made, turns)


def of(name: str, model: Any) -> dict[str, Ask]:
    tools = [function_tool(words.age_of)]
    thinks = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"), store=False)
    alone = ModelSettings(parallel_tool_calls=False, tool_choice="required", max_tokens=200)
    return {
        f"{name}-plain": lambda url: ran(agent(model, url)),
        f"{name}-streamed": lambda url: streamed(agent(model, url)),
        f"{name}-tools": lambda url: ran(agent(model, url, tools=tools)),
        f"{name}-tools-parallel-streamed": lambda url: streamed(agent(model, url, tools=tools)),
        f"{name}-json": lambda url: ran(agent(model, url, output_type=Fact)),
        f"{name}-handoff": lambda url: ran(agent(model, url, handoffs=["Archivist"])),
        f"{name}-picture": lambda url: ran(agent(model, url), PICTURE),
        f"{name}-two-turns-tools": lambda url: two_turns(agent(model, url, tools=tools)),
        f"{name}-thinking-tools": lambda url: two_turns(
            agent(model, url, tools=tools, model_settings=thinks)
        ),
        f"{name}-tools-required": lambda url: ran(
            agent(model, url, tools=tools, model_settings=alone)
        ),
        f"{name}-retried": lambda url: ran(agent(model, url)),
    }


SHAPES: dict[str, Ask] = {
    **of("chat", OpenAIChatCompletionsModel),
    **of("responses", OpenAIResponsesModel),
}

if __name__ == "__main__":
    words.run(("openai-agents", "openai"), SHAPES)
