"""What becomes of every shape between every caller and every upstream, in one line each.

`same` where the upstream was asked what was meant and the caller heard what was said; `refused`
and `reported` where the gateway says so; `other` where one of them got something else, which a
rule of docs/translation.md has to say. `python -m tests.conformance.round_trips.cells` writes what
holds now to `cells.txt`, which is reviewed like code; `test_round_trips` compares.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anthropic
import openai
from anyio import to_thread
from msgspec import Struct

from gateway.types import DialectName
from tests.conformance.round_trips.asked import Asked, read
from tests.conformance.round_trips.heard import Ask, Callers, Headers, Heard, meant
from tests.conformance.round_trips.said import SpeakingUpstreams
from tests.conformance.round_trips.shapes import ASKED, QUESTION, SHAPES, TOOL, TOOLS, USER
from tests.running_gateway import CLAUDE_TARGET, RunningGateway


TOLD_MAX = 900
FILE = Path(__file__).with_name("cells.txt")
NAMES: Mapping[DialectName, str] = {
    "openai_chat": "chat",
    "openai_responses": "responses",
    "anthropic_messages": "messages",
}
OPEN_TARGET = "open-chat"
OLD_GPT_TARGET = "gpt-5.4"
GPT_TARGET = "gpt-6-sol"
"""The abler of OpenAI's that tells probabilities."""
SETTINGS = """
[inspection]
deadline_s = 5.0
tolerated_opaque = ["image", "document"]
[requests]
media_hosts = ["pictures.example"]
[targets."gpt-5.4"]
provider = "openai"
model = "gpt-5.4"
[targets.gpt-6-sol]
provider = "openai"
model = "gpt-6-sol"
[targets.open-chat]
provider = "engine"
model = "fake-model"
catalogue = "scripted"
"""
TARGETS = (CLAUDE_TARGET, OLD_GPT_TARGET, GPT_TARGET, OPEN_TARGET)
"""Messages; chats at the vendor; chats there and responses where tools are; a compatible server."""

EXPLAINED: Mapping[str, str] = {
    "system blocks": "rule 3: instructions are one text there",
    "a refusal": "rule 60: its words are text, and that it is one is said in ours",
    "an answer that was filtered": "rule 60",
    "one call at a time": "rule 12: said beside a choice, which is the one there is anyway",
    "a budget for thinking": "rule 28: the effort that comes to as much",
    "a picture in a result": "rule 9",
    "a result that failed": "rule 17",
    "probabilities without thinking": "rule 28: a model that cannot think does without anyway",
    "a search of the vendor's": "its own vendor gets the tool as it is",
}
"""Why a shape arrives otherwise without a word said of it."""


class Cell(Struct, frozen=True):
    caller: DialectName
    target: str
    shape: str

    def __str__(self) -> str:
        return f"{NAMES[self.caller]} → {self.target}: {self.shape}"


def cells(caller: DialectName, target: str) -> Iterator[Cell]:
    for name, shape in SHAPES.items():
        if getattr(shape, NAMES[caller]) is not None:
            yield Cell(caller, target, name)


class Verdicts:
    """Asks cell by cell; every upstream answers in the dialect that it was asked in."""

    def __init__(self, callers: Callers, upstreams: SpeakingUpstreams) -> None:
        self._callers = callers
        self._upstreams = upstreams

    async def of(self, cell: Cell) -> str:
        """One line; raises AssertionError where a stream says another thing than a whole answer."""
        shape, caller = SHAPES[cell.shape], cell.caller
        self._upstreams.say(shape.said)
        ask = asking(cell)
        try:
            heard, headers = await self._whole(cell, ask)
        except (openai.BadRequestError, anthropic.BadRequestError) as error:
            assert self._upstreams.calls == []
            return f"refused: {_reason(error)}"
        streamed = await self._streamed(cell, ask)
        asked = [read(call.path, call.json) for call in self._upstreams.calls]
        assert streamed == heard, str(cell)
        assert asked[1:] == asked[:1], str(cell)
        flaws = [f"asked {name}" for name in different(asked[0], expected(cell))]
        flaws += [f"heard {name}" for name in different(heard, meant(shape.said, caller))]
        left_out = headers.get("x-gatewright-dropped", "")
        told = [f"reported {left_out}"] if left_out else []
        assert headers["x-gatewright-target"] == cell.target, str(cell)
        return "; ".join(told + [f"other {flaw}" for flaw in flaws]) or "same"

    async def _whole(self, cell: Cell, ask: Ask) -> tuple[Heard, Headers]:
        if _is_in_turn(cell):
            return await to_thread.run_sync(self._callers.whole_in_turn, cell.caller, ask)
        return await self._callers.whole(cell.caller, ask)

    async def _streamed(self, cell: Cell, ask: Ask) -> Heard:
        if _is_in_turn(cell):
            return await self._callers.streamed(cell.caller, ask)
        return await to_thread.run_sync(self._callers.streamed_in_turn, cell.caller, ask)


def _is_in_turn(cell: Cell) -> bool:
    """Every other shape is asked whole by the synchronous client, and streamed by the other."""
    return list(SHAPES).index(cell.shape) % 2 == 1


def asking(cell: Cell) -> Ask:
    """What the client is called with."""
    name = NAMES[cell.caller]
    plain: Mapping[str, Any] = {
        "chat": {"messages": [USER]},
        "responses": {"input": QUESTION},
        "messages": {"messages": [USER], "max_tokens": 256},
    }
    ask: Ask = {"model": cell.target} | plain[name] | getattr(SHAPES[cell.shape], name)
    return ask | ({"tools": TOOLS[name]} if _has_tool_beside(cell) else {})


def _has_tool_beside(cell: Cell) -> bool:
    """Newer models of OpenAI's are asked in responses where there are tools, and only there."""
    return cell.target == GPT_TARGET and not SHAPES[cell.shape].has_tools


def expected(cell: Cell) -> Asked:
    """What has to arrive."""
    beside = {"tools": [TOOL]} if _has_tool_beside(cell) else {}
    return {"turns": ASKED} | beside | dict(SHAPES[cell.shape].asks)


def different(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Names that were found otherwise, and how.

    A limit that nobody named is ours to choose, and how to think Claude's own matter.
    """
    free = {"limit", "thinking", "budget"} - wanted.keys()
    names = sorted((found.keys() | wanted.keys()) - free)
    return [
        f"{name} {_told(found.get(name))}" for name in names if found.get(name) != wanted.get(name)
    ]


def _told(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= TOLD_MAX else f"{text[:TOLD_MAX]}..."


def _reason(error: openai.BadRequestError | anthropic.BadRequestError) -> str:
    body: Any = error.body
    told = body.get("error", body)
    return str(told["message"])


def written() -> Mapping[str, str]:
    """What `cells.txt` says, by cell."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" | ", 1) for line in lines)


async def rewrite() -> None:
    """Write what holds now."""
    async with SpeakingUpstreams() as upstreams:
        with TemporaryDirectory() as name:
            folder = Path(name)
            url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
            async with RunningGateway(folder, url, upstreams, more=SETTINGS) as gateway:
                callers = Callers(gateway.url, await gateway.issue_key())
                verdicts = Verdicts(callers, upstreams)
                asked = [each for way in product(NAMES, TARGETS) for each in cells(*way)]
                lines = [f"{cell} | {await verdicts.of(cell)}\n" for cell in asked]
                await callers.close()
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(rewrite())
