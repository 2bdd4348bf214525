"""instructor, in each mode that its readers may choose."""

from collections.abc import Iterable
from typing import Any

import anthropic
import instructor
import openai
from pydantic import BaseModel

from tests.conformance.frameworks.programs import words
from tests.conformance.frameworks.programs.words import Ask


class Fact(BaseModel):
    """What is known of a bridge."""

    age: int
    name: str


TURNS: list[Any] = [{"role": "user", "content": words.JSON_QUESTION}]
CHAT = ("TOOLS", "TOOLS_STRICT", "PARALLEL_TOOLS", "JSON", "MD_JSON", "JSON_SCHEMA")
MESSAGES = (
    "ANTHROPIC_TOOLS",
    "ANTHROPIC_JSON",
    "ANTHROPIC_REASONING_TOOLS",
    "ANTHROPIC_PARALLEL_TOOLS",
)


def gpt(url: str, mode: str) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=words.KEY)
    return instructor.from_openai(client, mode=getattr(instructor.Mode, mode))


def claude(url: str, mode: str) -> Any:
    client = anthropic.Anthropic(base_url=url, api_key=words.KEY)
    return instructor.from_anthropic(client, mode=getattr(instructor.Mode, mode))


def chat(url: str, mode: str) -> object:
    wanted = Iterable[Fact] if "PARALLEL" in mode else Fact
    made = gpt(url, mode).chat.completions.create(
        model=words.GPT, messages=TURNS, response_model=wanted, max_retries=1
    )
    return list(made) if "PARALLEL" in mode else made


def partial(url: str, mode: str) -> object:
    made = gpt(url, mode).chat.completions.create_partial(
        model=words.GPT, messages=TURNS, response_model=Fact, max_retries=1
    )
    return list(made)[-1]


def responses(url: str) -> object:
    return gpt(url, "RESPONSES_TOOLS").responses.create(
        model=words.GPT, input=words.JSON_QUESTION, response_model=Fact, max_retries=1
    )


def messages(url: str, mode: str) -> object:
    wanted = Iterable[Fact] if "PARALLEL" in mode else Fact
    made = claude(url, mode).messages.create(
        model=words.CLAUDE,
        max_tokens=2000,
        messages=TURNS,
        response_model=wanted,
        max_retries=1,
    )
    return list(made) if "PARALLEL" in mode else made


SHAPES: dict[str, Ask] = {
    **{f"chat-{mode}": lambda url, mode=mode: chat(url, mode) for mode in CHAT},  # type: ignore[misc]
    **{
        f"chat-{mode}-partial": lambda url, mode=mode: partial(url, mode)  # type: ignore[misc]
        for mode in ("TOOLS", "JSON", "JSON_SCHEMA")
    },
    "chat-JSON-corrected": lambda url: chat(url, "JSON"),
    "chat-TOOLS-corrected": lambda url: chat(url, "TOOLS"),
    "responses-TOOLS": responses,
    **{f"messages-{mode}": lambda url, mode=mode: messages(url, mode) for mode in MESSAGES},  # type: ignore[misc]
    "messages-ANTHROPIC_TOOLS-corrected": lambda url: messages(url, "ANTHROPIC_TOOLS"),
}

if __name__ == "__main__":
    words.run(("instructor", "openai", "anthropic"), SHAPES)
