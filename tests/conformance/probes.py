"""Probes: one field or shape of a request at a time, from every dialect to every other one.

Bare text goes to all of them and nothing becomes bare text, so what it says has no way back: it is
`exact` where it arrives in the same words.

What becomes of it is found out, not claimed: a probe is `refused` or `reported` where the gateway
says so, `exact` where it survives the way there and back, `emulated` where it changes what is sent
and does not come back the same, `met` where a target does it anyway, and `silent` where nothing of
it arrives and nobody says so. The last must never be. `python -m tests.conformance.probes` writes
what holds now to `probes.txt`, which is reviewed like code; `test_probes` compares.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, GatewrightError
from gateway.money.catalogue import PARAMETERS
from gateway.types import ChatRequest, DialectName
from tests.conformance.probe_fields import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from tests.gateway.dialects.samples import target


FILE = Path(__file__).with_name("probes.txt")
NAMES: Mapping[DialectName, str] = {
    "openai_chat": "chat",
    "anthropic_messages": "messages",
    "openai_responses": "responses",
}
BARE: DialectName = "openai_completions"
TOLD: Mapping[DialectName, str] = {**NAMES, BARE: "completions"}
BASES: Mapping[DialectName, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "anthropic_messages": {
        "model": "m",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": "Hi"}],
    },
    "openai_responses": {"model": "m", "input": [{"role": "user", "content": "Hi"}]},
    BARE: {"model": "m", "prompt": "Hi"},
}
PROBES: Mapping[DialectName, Mapping[str, dict[str, Any]]] = {
    "openai_chat": CHAT,
    "anthropic_messages": MESSAGES,
    "openai_responses": RESPONSES,
    BARE: COMPLETIONS,
}
ABLE = frozenset(
    {
        *("cache_breakpoints", "documents", "effort", "images", "json_schema"),
        *(
            "max_completion_tokens",
            "mid_system",
            "prefill",
            "reasoning_effort",
            "streaming",
            "thinking",
            "tools",
        ),
    }
)
"""What the abler of the two targets of each dialect can do; the other one can do nothing of it."""


KNOWN = frozenset(
    {
        *(
            "text",
            "user",
            "assistant",
            "system",
            "developer",
            "tool",
            "function",
            "object",
            "string",
        ),
        *("json_schema", "tool_use", "tool_result", "function_call", "function_call_output"),
        *(
            "message",
            "input_text",
            "output_text",
            "input_image",
            "input_file",
            "image",
            "image_url",
        ),
        *("document", "file", "base64", "auto", "any", "none", "required", "ephemeral", "explicit"),
        *("custom", "url", "refusal", "enabled", "adaptive", "disabled", "integer", "json_object"),
    }
)
"""Words of the dialects themselves, which have to differ."""

MET = frozenset(
    {
        *("reasoning_effort none", "thinking {'type': 'disabled'}", "reasoning {'effort': 'none'}"),
        *("temperature 1", "top_p 1"),
    }
)
"""Not to think is what a model that cannot think does anyway, and so is sampling as it always does:
nothing needs to be said."""
NOTHING = frozenset(
    {
        *("top_k -1", "best_of 1", "store False", "truncation disabled", "verbosity medium"),
        *("prompt_cache_key k", "max_tool_calls 3", "client_metadata {'session': 's'}"),
        "tools called by the model alone",
        "reasoning {'summary': 'auto'}",
        "thinking {'type': 'adaptive'}",
    }
)
"""What asks for nothing, wherever it goes: no limit, one answer of one, and what is so anyway.

Prefixes are found again without a key where there is no word for one; tools that only their vendor
runs need no bound where there are none; what a program tells its vendor of itself is for no other;
what was thought is told by whoever tells it at all; and how much to think is a model's to decide
that is told nothing of it.
"""

SAID_OF_TURNS = frozenset({"blank_text", "last_turn", "system_position"})
"""No fields, but what is wrong with a turn or a block as a whole."""


class Row(Struct, frozen=True):
    source: DialectName
    probe: str
    wanted: DialectName
    is_able: bool

    def __str__(self) -> str:
        kind = "able" if self.is_able else "plain"
        return f"{TOLD[self.source]} → {TOLD[self.wanted]} ({kind}): {self.probe}"


def targets_of(source: DialectName) -> Iterable[DialectName]:
    """The three dialects of chats; bare text goes to who continues it as well."""
    return TOLD if source == BARE else NAMES


def rows() -> Iterator[Row]:
    """Every probe, from its dialect to all others, to an able target and to a plain one."""
    for source, probes in PROBES.items():
        for probe in probes:
            for wanted in targets_of(source):
                yield Row(source, probe, wanted, is_able=True)
                yield Row(source, probe, wanted, is_able=False)


def verdict(row: Row) -> str:
    """What becomes of a probe, in one line."""
    fields = PROBES[row.source][row.probe]
    try:
        request = read(row.source, BASES[row.source] | fields)
        sent, dropped = written(request, row)
    except FeatureUnsupported as error:
        rule = error.message.rpartition("(")[2].removesuffix(").")
        return f"refused: {error.parameter} by {rule}"
    except GatewrightError as error:
        return f"invalid: {error.message}"
    plain, known = written(read(row.source, BASES[row.source]), row)
    if lost := [name for name in dropped if name not in known]:
        return f"reported: {', '.join(lost)}"
    if sent == plain:
        is_met = row.probe in NOTHING or (row.probe in MET and not row.is_able)
        return "met" if is_met else "silent"
    if row.source == row.wanted:
        return "exact" if all(sent.get(name) == fields[name] for name in fields) else "emulated"
    if _comes_back(sent, fields, row):
        return "exact"
    changed = sorted(_words(fields) - _words(sent))
    return f"emulated: other words for {', '.join(changed)}" if changed else "emulated"


def words_of(name: str) -> set[str]:
    """Each step of a field's path, without places in lists."""
    return set(re.sub(r"\[\d+\]", "", name).split("."))


def words_sent(tree: object) -> set[str]:
    """Every key of a request, and every kind that something in it says it is."""
    words: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            words |= node.keys() | {str(node.get("type"))}
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return words


def read(dialect: DialectName, body: Mapping[str, Any]) -> ChatRequest:
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def written(request: ChatRequest, row: Row) -> tuple[dict[str, Any], tuple[str, ...]]:
    stance = "yes" if row.is_able else "no"
    parameters = dict.fromkeys(PARAMETERS, stance) | {"effort_none": "yes"}
    chosen = target(*(ABLE if row.is_able else ()), parameters=parameters)
    # What routing makes of the limit that was asked for.
    asked = request.max_output_tokens
    cap = 4000 if asked is None else asked
    upstream = DIALECTS[row.wanted].encode_request(request, chosen, cap)
    return json.loads(upstream.body), upstream.dropped


def _comes_back(sent: dict[str, Any], fields: Mapping[str, Any], row: Row) -> bool:
    if row.source == BARE:
        return all(sent.get(name) == fields[name] for name in fields)
    back = Row(row.wanted, row.probe, row.source, row.is_able)
    try:
        returned, _ = written(read(row.wanted, sent), back)
    except GatewrightError:
        return False
    return all(_alike(returned.get(name)) == _alike(fields[name]) for name in fields)


def _words(node: object) -> set[str]:
    """Every text in a tree that a caller wrote, the words of a dialect left out."""
    if isinstance(node, str):
        return set() if node in KNOWN else {node[:40]}
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return {word for each in inner for word in _words(each)}


def _alike(node: object) -> object:
    """The same meaning in one spelling: a text alone, a message without its default type."""
    if isinstance(node, list):
        return [_alike(each) for each in node]
    if not isinstance(node, dict):
        return node
    alike = {key: _alike(value) for key, value in node.items() if value is not None}
    content = alike.get("content")
    if isinstance(content, list) and len(content) == 1 and set(content[0]) == {"type", "text"}:
        alike["content"] = content[0]["text"]
    if alike.get("role") and alike.get("type") == "message":
        del alike["type"]
    return alike


def count() -> str:
    """One sentence for docs/translation.md."""
    kinds = Counter(line.partition(" | ")[2].partition(":")[0] for line in _lines())
    told = ", ".join(
        f"{kinds[kind]} {kind}" for kind in ("exact", "emulated", "reported", "refused", "met")
    )
    total, silent = sum(kinds.values()), kinds["silent"]
    return f"{total} probes (field x dialect x target): {told}, {silent} silent."


def expected() -> Mapping[str, str]:
    """What `probes.txt` says, by row."""
    return dict(line.split(" | ", 1) for line in _lines())


def _lines() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Write what holds now."""
    text = "".join(f"{row} | {verdict(row)}\n" for row in rows())
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
