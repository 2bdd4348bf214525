"""LangChain's models of both vendors."""

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int = Field(description="In years.")
    name: str


def chat(url: str, **more: Any) -> Any:
    return ChatOpenAI(model=words.GPT, base_url=f"{url}/v1", api_key=words.KEY, **more)


def responses(url: str, **more: Any) -> Any:
    return chat(url, use_responses_api=True, **more)


def claude(url: str, **more: Any) -> Any:
    more = {"model": words.CLAUDE, "max_tokens": 3000} | more
    return ChatAnthropic(base_url=url, api_key=words.KEY, **more)


def plain(model: Any) -> object:
    return model.invoke([SystemMessage(words.SYSTEM), HumanMessage(words.QUESTION)]).text


def streamed(model: Any) -> object:
    return _whole(model.stream(words.QUESTION)).text


def _whole(pieces: Any) -> Any:
    whole = None
    for piece in pieces:
        whole = piece if whole is None else whole + piece
    return whole


def tools(model: Any, *, streams: bool = False) -> object:
    calling = model.bind_tools([tool(words.age_of)])
    turns: list[Any] = [HumanMessage(words.QUESTION)]

    def ask() -> Any:
        return _whole(calling.stream(turns)) if streams else calling.invoke(turns)

    first = ask()
    turns.append(first)
    turns += [
        ToolMessage(words.age_of(**call["args"]), tool_call_id=call["id"])
        for call in first.tool_calls
    ]
    return ask().text


def structured(model: Any, method: str, *, streams: bool = False) -> object:
    made = model.with_structured_output(Fact, method=method)
    if streams:
        return list(made.stream(words.JSON_QUESTION))[-1]
    return made.invoke(words.JSON_QUESTION)


def picture(model: Any) -> object:
    seen = {"type": "image", "base64": words.PNG, "mime_type": "image/png"}
    said = {"type": "text", "text": words.QUESTION}
    return model.invoke([HumanMessage([said, seen])]).text


def two_turns(model: Any, *before: Any) -> object:
    turns = [*before, HumanMessage(words.QUESTION)]
    first = model.invoke(turns)
    return model.invoke([*turns, first, HumanMessage(words.SECOND)]).text


def cached(url: str) -> object:
    kept = {"type": "text", "text": words.LONG_SYSTEM, "cache_control": {"type": "ephemeral"}}
    return two_turns(claude(url), SystemMessage([kept]))


def embedded(url: str, **more: Any) -> object:
    made = OpenAIEmbeddings(model=words.EMBEDDER, base_url=f"{url}/v1", api_key=words.KEY, **more)
    return made.embed_documents([words.QUESTION, words.SECOND])


def of(name: str, make: Any, methods: tuple[str, ...]) -> dict[str, Ask]:
    shapes: dict[str, Ask] = {
        f"{name}-plain": lambda url: plain(make(url)),
        f"{name}-streamed": lambda url: streamed(make(url)),
        f"{name}-tools": lambda url: tools(make(url)),
        f"{name}-tools-parallel-streamed": lambda url: tools(make(url), streams=True),
        f"{name}-picture": lambda url: picture(make(url)),
        f"{name}-two-turns": lambda url: two_turns(make(url)),
        f"{name}-retried": lambda url: plain(make(url, max_retries=1)),
    }
    for method in methods:
        shapes[f"{name}-{method}"] = lambda url, m=method: structured(make(url), m)  # type: ignore[misc]
    shapes[f"{name}-{methods[0]}-streamed"] = lambda url: structured(
        make(url), methods[0], streams=True
    )
    return shapes


THINKING = {"type": "enabled", "budget_tokens": 2000}
SHAPES: dict[str, Ask] = {
    **of("chat", chat, ("json_schema", "function_calling", "json_mode")),
    "chat-thinking": lambda url: two_turns(chat(url, reasoning_effort="low")),
    "chat-limits": lambda url: plain(chat(url, max_tokens=200, temperature=0, seed=7, timeout=30)),
    **of("responses", responses, ("json_schema", "function_calling", "json_mode")),
    "responses-thinking-tools": lambda url: tools(
        responses(
            url,
            reasoning={"effort": "low", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            store=False,
        )
    ),
    "responses-v1-tools": lambda url: tools(responses(url, output_version="v1")),
    **of("messages", claude, ("json_schema", "function_calling")),
    "messages-thinking-tools": lambda url: tools(
        claude(url, model=words.OLD_CLAUDE, thinking=THINKING)
    ),
    "messages-adaptive-tools": lambda url: tools(claude(url, thinking={"type": "adaptive"})),
    "messages-effort": lambda url: plain(claude(url, effort="low")),
    "messages-cached": cached,
    "embeddings-of-texts": lambda url: embedded(url, check_embedding_ctx_length=False),
}

if __name__ == "__main__":
    words.run(("langchain-core", "langchain-openai", "langchain-anthropic"), SHAPES)
