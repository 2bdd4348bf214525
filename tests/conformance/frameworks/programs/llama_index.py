"""LlamaIndex's models of OpenAI, over chat completions and over responses."""

from typing import Any

import llama_index.llms.openai.base as gpt_models
import llama_index.llms.openai.responses as response_models
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int
    name: str


# It asks a table of its own how long a model's window is, and whether it calls tools.
for module in (gpt_models, response_models):
    for known in dir(module):
        if "contextsize" in known:
            setattr(module, known, lambda *_, **__: 100_000)
        if known == "is_function_calling_model":
            setattr(module, known, lambda *_, **__: True)

TURNS = [
    ChatMessage(role="system", content=words.SYSTEM),
    ChatMessage(role="user", content=words.QUESTION),
]


def made(kind: Any, url: str, **more: Any) -> Any:
    return kind(model=words.GPT, api_base=f"{url}/v1", api_key=words.KEY, **more)


def streamed(model: Any) -> str:
    return "".join(piece.delta or "" for piece in model.stream_chat(TURNS))


def tools(model: Any) -> object:
    tool = FunctionTool.from_defaults(words.age_of)
    first = model.chat_with_tools([tool], words.QUESTION)
    turns = [ChatMessage(role="user", content=words.QUESTION), first.message]
    for call in model.get_tool_calls_from_response(first):
        beside = {"tool_call_id": call.tool_id}
        given = words.age_of(**call.tool_kwargs)
        turns.append(ChatMessage(role="tool", content=given, additional_kwargs=beside))
    return str(model.chat_with_tools([tool], chat_history=turns))


def picture(model: Any) -> object:
    seen = ImageBlock(url=f"data:image/png;base64,{words.PNG}")
    turn = ChatMessage(role="user", blocks=[TextBlock(text=words.QUESTION), seen])
    return str(model.chat([turn]))


def two_turns(model: Any) -> object:
    first = model.chat(TURNS)
    turns = [*TURNS, first.message, ChatMessage(role="user", content=words.SECOND)]
    return str(model.chat(turns))


def of(name: str, kind: Any) -> dict[str, Ask]:
    return {
        f"{name}-plain": lambda url: made(kind, url).complete(words.QUESTION).text,
        f"{name}-streamed": lambda url: streamed(made(kind, url)),
        f"{name}-tools-parallel": lambda url: tools(made(kind, url)),
        f"{name}-picture": lambda url: picture(made(kind, url)),
        f"{name}-two-turns": lambda url: two_turns(made(kind, url)),
        f"{name}-structured": lambda url: (
            made(kind, url).as_structured_llm(Fact).complete(words.QUESTION).raw
        ),
        f"{name}-retried": lambda url: str(made(kind, url, max_retries=1).chat(TURNS)),
    }


SHAPES: dict[str, Ask] = {
    **of("chat", OpenAI),
    **of("responses", OpenAIResponses),
}

if __name__ == "__main__":
    words.run(("llama-index-core", "llama-index-llms-openai", "openai"), SHAPES)
