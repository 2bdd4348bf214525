"""Where each token stands in its text: whole answers and streams, with and without the prompt."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from local_engine.text.detokenize import IncrementalDetokenizer
from local_engine.text.template import ChatTemplate
from local_engine.text.tokenizer import ChatTokenizer
from tests.local_engine.models import DEMO_MODEL
from tests.local_engine.served import client_of, events, served
from tests.local_engine.test_text import BYTE_CHARS, OF_BYTES, OF_BYTES_DECODER


BYTE_LEVEL = ChatTokenizer(
    Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json")), ChatTemplate("", {})
)
NAMES = {number: name for name, number in BYTE_LEVEL._tokenizer.get_vocab().items()}
BYTES_OF = {char: byte for byte, char in BYTE_CHARS.items()}
TEXTS = st.text(max_size=30) | st.text(alphabet="a \ufffd\u20ac\U0001f98a\u0142", max_size=12)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def whole_characters_before(pieces: list[bytes]) -> list[int]:
    """For each piece of a text how many characters have ended before it."""
    return [len(b"".join(pieces[:at]).decode(errors="ignore")) for at in range(len(pieces))]


@given(TEXTS)
def test_a_token_stands_behind_the_characters_that_have_ended_before_it(text: str) -> None:
    token_ids = BYTE_LEVEL.encode_plain(text)
    pieces = [bytes(BYTES_OF[char] for char in NAMES[each]) for each in token_ids]
    assert b"".join(pieces).decode() == text
    assert BYTE_LEVEL.offsets(token_ids) == whole_characters_before(pieces)


@given(TEXTS)
def test_so_it_does_where_each_byte_is_a_token(text: str) -> None:
    pieces = [bytes([byte]) for byte in f"a{text}".encode()]
    token_ids = [1 + piece[0] for piece in pieces]
    assert OF_BYTES.offsets(token_ids) == whole_characters_before(pieces)


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=40))
def test_of_any_tokens_none_stands_before_another_or_beyond_the_text(token_ids: list[int]) -> None:
    offsets = BYTE_LEVEL.offsets(token_ids)
    assert offsets == sorted(offsets)
    text = BYTE_LEVEL.decode(token_ids)
    for token_id, offset in zip(token_ids, offsets, strict=True):
        assert offset <= len(text)
        own = BYTE_LEVEL.decode([token_id])
        if "\ufffd" not in own:
            assert text.startswith(own, offset)


def test_what_is_no_text_moves_nobody_who_comes_after_a_long_run_of_it() -> None:
    junk = [BYTE_LEVEL._tokenizer.get_vocab()[BYTE_CHARS[0xFF]]] * 200
    token_ids = [*junk, *BYTE_LEVEL.encode_plain("end")]
    text = BYTE_LEVEL.decode(token_ids)
    *before, last = BYTE_LEVEL.offsets(token_ids)
    assert before[:200] == list(range(200))
    assert text[last:] == BYTE_LEVEL.decode(token_ids[-1:])


def of_words() -> Tokenizer:
    """As Llama 2's: a word has its space before it, and the text's first word has none."""
    names = ["<s>", "</s>", "\u2581one", "\u2581two", "\u2581", "<unk>"]
    found = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)}, "<unk>"))
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    found.decoder = OF_BYTES_DECODER
    found.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    found.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return found


BEGIN, END, ONE, TWO, SPACE = range(5)
OF_WORDS = ChatTokenizer(of_words(), ChatTemplate("", {}))


def streamed(detokenizer: IncrementalDetokenizer, token_ids: list[int]) -> str:
    return "".join([*map(detokenizer.push, token_ids), detokenizer.finish()])


@example([BEGIN] * 20 + [SPACE, ONE], 0)
@example([ONE] + [END] * 20 + [TWO], 0)
@given(st.lists(st.integers(0, SPACE), max_size=24), st.integers(0, 24))
def test_a_text_goes_on_as_if_it_were_read_in_one_whatever_is_not_shown(
    token_ids: list[int], at: int
) -> None:
    before, rest = token_ids[:at], token_ids[at:]
    assert streamed(OF_WORDS.detokenizer(), token_ids) == OF_WORDS.decode(token_ids)
    begins = OF_WORDS.decode(before)
    goes_on = streamed(OF_WORDS.detokenizer(after=before), rest)
    assert begins + goes_on == OF_WORDS.decode(token_ids)


@pytest.fixture
def model_of_words(tiny_model: Path) -> Path:
    """A random model whose tokenizer writes words with the spaces before them."""
    of_words().save(str(tiny_model / "tokenizer.json"))
    return tiny_model


async def choices_of(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    """Those of a whole answer, and the same joined from a stream."""
    asked = {"model": "tiny", "temperature": 0, **body}
    answer = await client.post("/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    (whole,) = answer.json()["choices"]
    answer = await client.post("/v1/completions", json={**asked, "stream": True})
    parts = [event["choices"][0] for event in events(answer.text)]
    told = {
        name: [each for part in parts for each in part["logprobs"][name]]
        for name in ("tokens", "text_offset")
    }
    return [whole, {"text": "".join(part["text"] for part in parts), "logprobs": told}]


@pytest.mark.anyio
async def test_a_completion_begins_with_the_space_that_is_between_it_and_its_prompt(
    model_of_words: Path,
) -> None:
    body = {"prompt": "one two", "max_tokens": 2, "allowed_token_ids": [ONE], "logprobs": 0}
    async with served(model_of_words) as place, client_of(place.engine) as client:
        plain = await choices_of(client, **body)
        echoed = await choices_of(client, **body, echo=True)
    for choice in plain:
        assert choice["text"] == " one one"
        assert choice["logprobs"]["text_offset"] == [0, 4]
    for choice in echoed:
        assert choice["text"] == "one two one one"
        assert choice["logprobs"]["tokens"][0] == "<s>"
        assert choice["logprobs"]["text_offset"] == [0, 0, 3, 7, 11]


@pytest.mark.anyio
@pytest.mark.parametrize("echo", [False, True])
async def test_whole_answers_and_streams_say_the_same_of_where_tokens_stand(
    tiny_model: Path, *, echo: bool
) -> None:
    prompt, written = "za\u017c\u00f3\u0142\u0107 \U0001f98a", "\u20ac\U0001f98a"
    allowed = BYTE_LEVEL.encode_plain(written)
    body = {"prompt": prompt, "max_tokens": 9, "allowed_token_ids": allowed, "logprobs": 0}
    async with served(tiny_model) as place, client_of(place.engine) as client:
        for choice in await choices_of(client, **body, echo=echo, return_token_ids=True):
            told = choice["logprobs"]["text_offset"]
            read = BYTE_LEVEL.offsets(BYTE_LEVEL.encode_plain(prompt)) if echo else []
            assert told[: len(read)] == read
            assert len(told) == len(read) + 9
            assert told == sorted(told)
            assert told[len(read)] == (len(prompt) if echo else 0)


@pytest.mark.anyio
async def test_a_token_that_a_stop_string_cuts_away_stands_where_it_was_written(
    model_of_words: Path,
) -> None:
    body = {"prompt": "one", "max_tokens": 9, "allowed_token_ids": [TWO], "logprobs": 0}
    async with served(model_of_words) as place, client_of(place.engine) as client:
        for choice in await choices_of(client, **body, stop="o two two"):
            assert choice["text"] == " tw"
            assert choice["logprobs"]["text_offset"] == [0, 4, 8]
