"""The bench's parts that speak to servers: a directory others can load, a clock, streams."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from local_engine.bench.http import http_rows
from local_engine.bench.model_directory import END, write_directory
from local_engine.bench.servers import Server, ServerFailed, free_port, our_command, started
from local_engine.bench.streams import read_stream, read_streams
from local_engine.bench.subject import SPEC, new_decoder, random_prompt
from local_engine.model.config import read_spec
from local_engine.model.loader import load_decoder, load_model
from local_engine.model.manifest import open_model
from local_engine.text.tokenizer import load_chat_tokenizer
from tests.local_engine.models import DEMO_MODEL


PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    log = tmp_path_factory.mktemp("bench") / "ours.log"
    with started("ours", our_command(DEMO_MODEL, port), port, log) as found:
        yield found


def test_the_measured_model_can_be_loaded_from_its_directory(tmp_path: Path) -> None:
    decoder = new_decoder()
    write_directory(tmp_path, decoder)
    with open_model(tmp_path) as files:
        spec = read_spec(files)
        loaded = load_decoder(files)
        tokenizer = load_chat_tokenizer(files)
    assert spec.context_window == SPEC.context_window
    assert {**loaded.state_dict()}.keys() == {**decoder.state_dict()}.keys()
    assert loaded.state_dict()["model.norm.weight"].equal(decoder.state_dict()["model.norm.weight"])
    assert tokenizer.vocab_size == SPEC.vocab_size
    raw = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert raw.id_to_token(SPEC.vocab_size - 1) == END
    for text in ("abcdefghi jkl 0123", "Grüße, 世界"):
        assert raw.decode(raw.encode(text).ids) == text


def test_a_stream_is_read_to_its_last_token_and_timed_by_the_servers_clock(server: Server) -> None:
    before_us = server.cpu_us()
    stream = asyncio.run(read_stream(server, PROMPT, 12))
    assert stream.num_tokens == 12
    assert len(stream.event_us) > 1
    # On a busy machine all of an answer may arrive at once.
    assert before_us <= stream.started_us < stream.event_us[0] <= stream.event_us[-1]
    assert stream.event_us[-1] <= server.cpu_us()
    assert all(gap >= 0 for gap in stream.gaps_us())
    assert not any(stream.gaps_us(until_us=stream.event_us[0]))


def test_the_clock_counts_the_process_that_computes_too(server: Server) -> None:
    assert len(server.pids) == 2
    alone = Server("ours", server.port, server.model, server.pids[:1])
    before_us, before_alone_us = server.cpu_us(), alone.cpu_us()
    asyncio.run(read_streams(server, [PROMPT] * 4, 48))
    assert server.cpu_us() - before_us > alone.cpu_us() - before_alone_us


def test_streams_at_once_write_what_each_writes_alone(server: Server) -> None:
    alone = asyncio.run(read_stream(server, PROMPT, 10))
    together = asyncio.run(read_streams(server, [PROMPT] * 3, 10))
    assert [stream.text for stream in together] == [alone.text] * 3


def test_a_refused_request_is_no_measurement(server: Server) -> None:
    with pytest.raises(ServerFailed, match="400"):
        asyncio.run(read_stream(server, [10**9], 4))


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with (
        pytest.raises(ServerFailed, match="it ended with 3: no such model"),
        started("broken", command, free_port(), tmp_path / "log"),
    ):
        raise AssertionError("it never came up")


def test_a_peer_that_does_not_come_up_ends_the_measurement(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="it ended with"):
        next(http_rows(load_model(DEMO_MODEL).decoder, tmp_path / "no-python", rounds=1))


def test_prompts_are_the_same_in_every_run() -> None:
    assert random_prompt(5, 3) == random_prompt(5, 3)
    assert random_prompt(5, 3) != random_prompt(5, 4)
