"""Snippets to paste for a first request: the data plane's address, in curl and in an SDK."""

from typing import Final

from gateway.configuration.settings import Settings


QUESTION: Final = "What does a receipt prove?"
CURL: Final = """curl -i {url}/v1/chat/completions \\
  -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' \\
  -d '{{"model": "auto", "messages": [{{"role": "user", "content": "{question}"}}]}}'"""
PYTHON: Final = """from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="{key}")
messages = [{{"role": "user", "content": "{question}"}}]
for chunk in client.chat.completions.create(model="auto", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)"""


def data_plane_url(settings: Settings) -> str:
    """Where application teams reach the data plane, without a slash at its end."""
    return settings.data_plane_url.rstrip("/") or settings.data_plane.url


def curl(url: str, key: str) -> str:
    """A request on the command line."""
    return CURL.format(url=url, key=key, question=QUESTION)


def python(url: str, key: str) -> str:
    """The same with OpenAI's SDK, streaming."""
    return PYTHON.format(url=url, key=key, question=QUESTION)
