"""LangChain's two clients at a gateway; prints one JSON object per check, and nothing else.

Run by `test_other_clients.py` in an environment of their own: they need what the gateway does not.
"""

import json
import os
from collections.abc import Callable, Mapping

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


URL, KEY = os.environ["URL"], os.environ["KEY"]
QUESTION = "How old is the bridge?"


@tool  # type: ignore[untyped-decorator]
def age_of(name: str) -> str:
    """Say how old a bridge is."""
    return f"{name}: 120"


def _openai(model: str, *, responses: bool = False) -> ChatOpenAI:
    return ChatOpenAI(
        model=model,
        base_url=f"{URL}/v1",
        api_key=KEY,
        use_responses_api=responses,
        stream_usage=True,
        max_retries=0,
    )


def _anthropic(model: str) -> ChatAnthropic:
    return ChatAnthropic(model=model, base_url=URL, api_key=KEY, max_tokens=50, max_retries=0)


def _streamed(chat: ChatOpenAI | ChatAnthropic) -> str:
    pieces = list(chat.stream(QUESTION))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = whole + piece
    tokens = whole.usage_metadata["output_tokens"]
    return f"{whole.text} [{tokens}]"


def _with_tools(chat: ChatOpenAI | ChatAnthropic) -> str:
    return str(chat.bind_tools([age_of]).invoke(QUESTION).text)


def _embedded(_: str) -> str:
    made = OpenAIEmbeddings(
        model="embedder", base_url=f"{URL}/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    return str(made.embed_query("one"))


CHECKS: Mapping[str, Callable[[str], str]] = {
    "openai chat": lambda model: str(_openai(model).invoke(QUESTION).text),
    "openai chat stream": lambda model: _streamed(_openai(model)),
    "openai chat tools": lambda model: _with_tools(_openai(model)),
    "openai responses": lambda model: str(_openai(model, responses=True).invoke(QUESTION).text),
    "openai responses stream": lambda model: _streamed(_openai(model, responses=True)),
    "anthropic": lambda model: str(_anthropic(model).invoke(QUESTION).text),
    "anthropic stream": lambda model: _streamed(_anthropic(model)),
    "anthropic tools": lambda model: _with_tools(_anthropic(model)),
}


def main() -> None:
    for model in os.environ["TARGETS"].split(","):
        for name, check in CHECKS.items():
            said = check(model)
            print(json.dumps({"name": name, "model": model, "said": said}))  # noqa: T201
    print(json.dumps({"name": "embeddings", "model": "", "said": _embedded("")}))  # noqa: T201


if __name__ == "__main__":
    main()
