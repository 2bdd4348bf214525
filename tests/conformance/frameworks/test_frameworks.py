"""Every request that a framework was seen to send, at every upstream, as `replayed.txt` says."""

import itertools
import json
import re
import struct
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.conformance.contract import ROOT
from tests.conformance.frameworks import kept
from tests.conformance.frameworks.replayed import SETTINGS as OF_CELLS
from tests.conformance.frameworks.replayed import TARGETS, Replays, all_sent, way, written
from tests.conformance.frameworks.scripted import BUSY, vectors
from tests.conformance.probes import words_of, words_sent
from tests.conformance.round_trips.said import Said, SpeakingUpstreams
from tests.running_gateway import RunningGateway
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

EMBEDDER = "embedder"
SETTINGS = f"""{OF_CELLS}
[targets.{EMBEDDER}]
provider = "openai"
model = "text-embedding-3-small"
"""
FRAMEWORKS = kept.frameworks()
EXPLAINED: Mapping[str, str] = {
    "asked temperature": "rule 22: 1 is what a model does anyway that takes no other",
    "changed temperature": "rule 22: the same, in the target's own dialect",
    "changed max_tokens": "rule 62: some models have another name for the limit; also capped",
    "asked thinking": "rule 28: how to think is Claude's own matter",
    "asked budget": "rule 28: the effort that comes to as much",
    "asked effort": "rule 28: the effort that comes to as much as a budget",
    "asked choice": "rules 12 and 15: a choice without tools is none; no new calls",
    "asked tools": "rule 15: a history with calls gets definitions of its tools",
    "asked turns": "rule 17: failed results are marked",
    "asked schema": "rule 10: what Claude enforces names no further properties",
    "asked strict": "rule 33: Claude enforces every schema that it takes",
    "asked user": "rule 25: a keyed digest",
}
"""Why something arrives otherwise without a word said of it."""
UNREAD: Mapping[str, str] = {
    "model": "the target's own name for it",
    "stream": "the form of the answer, which is compared",
    "stream_options": "rule 40",
    "store": "rule 54",
    "include": "rule 68",
    "previous_response_id": "rule 54",
    "truncation": "rule 68",
    "metadata": "rule 55",
    "encoding_format": "of embeddings, which are compared byte for byte",
}
"""Fields of requests that `round_trips/asked.py` does not read, and what holds of them."""
READ = frozenset(
    {
        *("messages", "input", "instructions", "system", "tools", "tool_choice", "text"),
        *("response_format", "output_config", "output_format", "parallel_tool_calls"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "seed"),
        *("reasoning", "reasoning_effort", "thinking", "user"),
    }
)


@pytest.fixture(scope="module")
async def shared_upstreams() -> AsyncIterator[SpeakingUpstreams]:
    async with SpeakingUpstreams() as running:
        yield running


@pytest.fixture
async def replays(
    shared_gateway: RunningGateway, shared_key: str, shared_upstreams: SpeakingUpstreams
) -> AsyncIterator[Replays]:
    made = Replays(shared_gateway.url, shared_key, shared_upstreams)
    yield made
    await made.close()


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_every_request_of_a_framework_comes_through_or_is_refused_in_words(
    replays: Replays, framework: str
) -> None:
    sent = [each for each in all_sent() if each.framework == framework]
    found = {
        way(each, target): await replays.of(each, target) for each in sent for target in TARGETS
    }

    told = {name: line for name, line in written().items() if name.startswith(f"{framework}: ")}
    assert found == told, "if it is meant so: `python -m tests.conformance.frameworks.replayed`"


def test_what_arrives_otherwise_without_a_word_is_explained() -> None:
    silent = set()
    for line in written().values():
        if not line.startswith("reported"):
            silent |= {f"asked {name}" for name in re.findall(r"other asked (\w+)", line)}
            changed = line.partition("changed ")[2].split(", ")
            silent |= {f"changed {name}" for name in changed if name}
        assert "heard" not in line, line

    assert silent == EXPLAINED.keys()


def test_what_is_left_out_without_a_word_is_only_what_says_nothing() -> None:
    """Another temperature than 1, or a depth of thought, would be a loss to be told of."""
    told = written()
    for sent, target in itertools.product(all_sent(), TARGETS):
        line = told[way(sent, target)]
        if line.startswith("reported"):
            continue
        if "temperature" in line:
            assert sent.body["temperature"] == 1, (str(sent), target)
        if "asked thinking null" in line and "asked effort" not in line:
            assert sent.body["thinking"]["type"] == "adaptive", (str(sent), target)
        if "asked choice null" in line:
            assert sent.body["tool_choice"] == "none", (str(sent), target)
        assert not re.search(r'asked user (?!"a digest")', line), (str(sent), target)


def test_no_request_of_a_framework_is_refused() -> None:
    assert not [name for name, line in written().items() if line.startswith("refused")]


def test_every_field_of_a_request_is_read_or_explained() -> None:
    fields = {
        name for framework in FRAMEWORKS for sent in kept.sent_by(framework) for name in sent.body
    }

    assert fields == READ | UNREAD.keys()


def test_every_name_that_is_told_is_one_that_its_caller_sent() -> None:
    told = written()
    for sent in all_sent():
        body = dict(sent.body) | dict(sent.headers)
        for target in TARGETS:
            left_out = re.findall("^reported ([^;]+)", told[way(sent, target)])
            for name in left_out[0].split(", ") if left_out else ():
                assert words_of(name) <= words_sent(body), (str(sent), name)


async def test_vectors_arrive_as_they_were_made(
    replays: Replays, shared_upstreams: SpeakingUpstreams
) -> None:
    every = [each for framework in FRAMEWORKS for each in kept.sent_by(framework)]
    asked = [each for each in every if each.path == kept.EMBEDDINGS]
    assert {each.body.get("encoding_format") for each in asked} == {"base64", None}
    for sent in asked:
        shared_upstreams.openai.forget()
        made = vectors(dict(sent.body))
        shared_upstreams.openai.answer_once(Answer(body=made))

        answer = await replays.ask(sent, EMBEDDER)

        assert answer.status_code == 200
        (call,) = shared_upstreams.openai.calls
        assert call.json == dict(sent.body) | {"model": "text-embedding-3-small"}
        got = [each["embedding"] for each in answer.json()["data"]]
        if sent.body.get("encoding_format") == "base64":
            got = [list(struct.unpack("<2f", b64decode(each))) for each in got]
        assert got == [each["embedding"] for each in json.loads(made)["data"]]


async def test_a_framework_that_tries_again_gets_its_answer(
    replays: Replays, shared_upstreams: SpeakingUpstreams
) -> None:
    tried = 0
    for first, second in _tries():
        shared_upstreams.say(second.said or Said())
        for upstream in shared_upstreams.everyone:
            upstream.answer_once(*[Answer(status=503, body=BUSY)] * 3)
        failed = await replays.ask(first, TARGETS[1])
        assert failed.status_code in {502, 503, 529}
        assert failed.headers.get("x-should-retry") != "false"

        for upstream in shared_upstreams.everyone:
            upstream.forget()
        answer = await replays.ask(second, TARGETS[1])
        assert answer.status_code == 200, answer.text
        assert second.headers.get("x-stainless-retry-count", "1") == "1"
        tried += 1
    assert tried > 8


def _tries() -> list[tuple[kept.Sent, kept.Sent]]:
    every = [each for framework in FRAMEWORKS for each in kept.sent_by(framework)]
    return [
        (first, second)
        for first, second in itertools.pairwise(every)
        if first.shape == second.shape and "retried" in first.shape and first.said is None
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_recording_says_who_asked_and_nothing_of_where(framework: str) -> None:
    text = kept.file_of(framework).read_text()
    versions: Mapping[str, Any] = kept.versions(framework)

    assert versions
    assert all(re.fullmatch(r"\d+(\.\w+)+", version) for version in versions.values())
    assert not re.search(r"/(home|root|tmp|work|usr)/|127\.0\.0\.1|authorization", text)


def test_the_page_says_which_versions_were_recorded() -> None:
    page = ROOT.joinpath("docs", "clients.md").read_text(encoding="utf-8")
    section = page.partition("\n## Frameworks and other clients\n")[2].partition("\n## ")[0]
    for framework in FRAMEWORKS:
        told = [f"{name} {version}" for name, version in kept.versions(framework).items()]
        rows = [line for line in section.splitlines() if any(each in line for each in told)]
        assert len(rows) == 1, framework
