"""Someone who has never seen Gatewright runs one command and pastes what it prints.

The whole of it is real: three processes, the trained model, both SDKs, the evidence on disk.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Literal

import aiohttp
import anthropic
import openai
import pytest
from anthropic.types import MessageParam
from pydantic import BaseModel

from tests.free_ports import free_port
from tests.identifiers import aadhaar


pytestmark = pytest.mark.anyio

QUESTION = "What does a receipt prove?"
ANSWER = (
    "A receipt proves that the audit record of your request is in the log. "
    "It names the worker, the segment, the offset and the leaf hash."
)


class Choice(BaseModel):
    """A form that the model would never keep by itself."""

    kind: Literal["receipt", "record"]
    is_whole: bool


class Demo:
    """A running `gatewright demo`, and what it printed."""

    def __init__(self, folder: Path, printed: str) -> None:
        self.config_file = folder / "gatewright.toml"
        self.printed = printed
        self.url = self._found(r"one endpoint +(\S+)")
        self.admin_url = self._found(r"admin +(\S+)")
        self.token = self._found(r"\(token: (\S+)\)")
        self.key = self._found(r"your key +(\S+)")

    def _found(self, pattern: str) -> str:
        match = re.search(pattern, self.printed)
        assert match is not None, self.printed
        return match[1]

    def snippet(self, start: str, end: str) -> str:
        """A piece of what was printed, as a person would select it."""
        after = self.printed[self.printed.index(start) :]
        return after[: after.index(end) + len(end)]

    async def gatewright(self, *arguments: str) -> tuple[int, str]:
        """Run a command against the demo's configuration."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *arguments, "--config", str(self.config_file)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    template = resources.files("gateway.cli").joinpath("template.toml").read_text("utf-8")
    for port in ("8080", "8081", "8090"):
        template = template.replace(port, str(free_port()))
    (folder / "gatewright.toml").write_text(template)
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "demo", "--folder", str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    assert process.stdout is not None
    printed = ""
    async with asyncio.timeout(100):
        while "--receipt RECEIPT" not in printed:
            line = await process.stdout.readline()
            assert line, printed
            printed += line.decode()
    draining = asyncio.ensure_future(process.stdout.read())
    yield Demo(folder, printed)
    process.send_signal(signal.SIGTERM)
    await draining
    assert await process.wait() == 0


async def test_both_sdks_stream_what_the_model_really_generated(demo: Demo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        stream = await gpt.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": QUESTION}], stream=True
        )
        first = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    messages: list[MessageParam] = [{"role": "user", "content": QUESTION}]
    async with (
        anthropic.AsyncAnthropic(base_url=demo.url, api_key=demo.key) as claude,
        claude.messages.stream(model="auto", max_tokens=100, messages=messages) as answer,
    ):
        second = "".join([text async for text in answer.text_stream])
        usage = (await answer.get_final_message()).usage

    assert first == second == ANSWER
    assert usage.output_tokens > 10


async def test_the_own_engine_holds_its_answer_to_a_schema_in_every_dialect(demo: Demo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        chat = await gpt.chat.completions.parse(
            model="auto",
            messages=[{"role": "user", "content": QUESTION}],
            response_format=Choice,
            temperature=0,
        )
        response = await gpt.responses.parse(model="auto", input=QUESTION, text_format=Choice)
    async with anthropic.AsyncAnthropic(base_url=demo.url, api_key=demo.key) as claude:
        message = await claude.messages.parse(
            model="auto",
            max_tokens=60,
            messages=[{"role": "user", "content": QUESTION}],
            output_format=Choice,
        )

    for parsed in (
        chat.choices[0].message.parsed,
        response.output_parsed,
        message.parsed_output,
    ):
        assert isinstance(parsed, Choice)


async def test_a_tenant_meets_its_own_prefixes_in_the_engine_again(demo: Demo) -> None:
    question = "Say again: " + "one two three four five six seven eight " * 8
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        _, second = [
            await gpt.chat.completions.create(
                model="auto", max_tokens=4, messages=[{"role": "user", "content": question}]
            )
            for _ in range(2)
        ]
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens


async def test_printed_snippets_work_when_pasted_and_their_receipt_holds(demo: Demo) -> None:
    curl = demo.snippet("curl -i", "}]}'")
    sdk = demo.snippet(f"{os.path.relpath(sys.executable)} - <<'EOF'", "\nEOF\n")
    for script in (curl, sdk):
        process = await asyncio.create_subprocess_shell(
            script, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert ANSWER in output.decode()
        receipt = re.search(r"receipt: (\S+)", output.decode())
        assert receipt is not None
        status, text = await demo.gatewright("audit", "verify", "--receipt", receipt[1])
        assert status == 0, text
        assert "receipt: holds" in text


async def test_whole_log_verifies_and_exports_what_was_asked(demo: Demo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        raw = await gpt.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": QUESTION}]
        )
    status, text = await demo.gatewright("audit", "verify")
    _, exported = await demo.gatewright("audit", "export")

    assert status == 0, text
    assert "the chain is whole" in text
    assert raw.headers["x-request-id"] in exported
    assert '"target": "gatewright-demo"' in exported
    assert QUESTION not in exported


async def test_sensitive_prompt_is_answered_in_house(demo: Demo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        raw = await gpt.chat.completions.with_raw_response.create(
            model="auto",
            messages=[{"role": "user", "content": f"My Aadhaar number is {aadhaar(3)}."}],
        )
    _, exported = await demo.gatewright("audit", "export")

    assert raw.headers["x-gatewright-target"] == "gatewright-demo"
    assert '"IN_AADHAAR": 1' in exported
    assert aadhaar(3) not in exported


async def test_managed_models_are_listed_as_unavailable(demo: Demo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{demo.url}/v1", api_key=demo.key) as gpt:
        models = {model.id: model async for model in gpt.models.list()}

    assert models["gatewright-demo"].model_extra["available"] is True  # type: ignore[index]
    for name, model in models.items():
        if name.startswith(("claude", "gpt")):
            assert model.model_extra["unavailable_reason"] == "no credential"  # type: ignore[index]


async def test_admin_listener_asks_for_its_token(demo: Demo) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(demo.admin_url) as page:
            assert "Admin token" in await page.text()
        origin = {"origin": demo.admin_url}
        form = {"token": demo.token}
        async with browser.post(f"{demo.admin_url}/sign-in", data=form, headers=origin) as page:
            text = await page.text()

    assert "gatewright-demo" in text
    assert "Latest requests" in text
