"""Model directories that are broken or hostile: one line that names the file, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_engine.model.errors import ModelRefused
from local_engine.serve.compute.worker_process import load_worker
from local_engine.serve.options import WorkerOptions
from local_engine.serve.wire import socket_pair
from tests.local_engine.served import client_of, served


DEEP = b"[" * 100_000 + b"]" * 100_000
Change = Callable[[Path], None]


def refusal_of(directory: Path) -> str:
    """Why the worker will not serve a directory, read from its first file to its last."""
    ours, theirs = socket_pair()
    with ours, theirs, pytest.raises(ModelRefused) as refusal:
        load_worker(theirs, WorkerOptions(model=str(directory), device="cpu"))
    return str(refusal.value)


def rewritten(name: str, change: Callable[[dict[str, Any]], None]) -> Change:
    def rewrite(directory: Path) -> None:
        content = json.loads((directory / name).read_text())
        change(content)
        (directory / name).write_text(json.dumps(content))

    return rewrite


def configured(**fields: Any) -> Change:
    return rewritten("config.json", lambda config: config.update(fields))


def deepened(name: str) -> Change:
    """A harmless field more, nested deeper than anybody reads."""

    def deepen(directory: Path) -> None:
        path = directory / name
        content = (
            path.read_bytes().rstrip() if path.exists() else b'{"files": {}, "weight_map": {}}'
        )
        path.write_bytes(content[:-1] + b', "deep": ' + DEEP + b"}")

    return deepen


def written(name: str, content: bytes) -> Change:
    def write(directory: Path) -> None:
        (directory / name).write_bytes(content)

    return write


def with_header(entry: bytes) -> Change:
    """One more entry in the header of the weights."""

    def write(directory: Path) -> None:
        path = directory / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = content[8 : 8 + length].rstrip()[:-1] + b', "more": ' + entry + b"}"
        path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])

    return write


def with_empty(shape: list[int]) -> Change:
    """A tensor without elements at the end of the weights."""

    def write(directory: Path) -> None:
        content = (directory / "model.safetensors").read_bytes()
        end = len(content) - 8 - int.from_bytes(content[:8], "little")
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [end, end]}
        with_header(json.dumps(entry).encode())(directory)

    return write


def panicking(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def emptied(content: dict[str, Any]) -> None:
    content["model"].update(vocab={}, merges=[])
    content["added_tokens"] = []


def with_a_gap(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] = 5000


EXPERTS = {"num_experts": 1 << 20, "moe_intermediate_size": 8}
BROKEN: dict[str, tuple[Change, str]] = {
    "deep config": (deepened("config.json"), "config.json"),
    "deep wishes": (deepened("generation_config.json"), "generation_config.json"),
    "deep index": (deepened("model.safetensors.index.json"), "model.safetensors.index.json"),
    "deep manifest": (deepened("manifest.json"), "manifest.json"),
    "deep tokenizer": (deepened("tokenizer_config.json"), "tokenizer_config.json"),
    "deep header": (with_header(DEEP), "model.safetensors"),
    "odd bytes": (written("config.json", b'{"architectures": ["\xff"]}'), "config.json"),
    "odd template": (written("chat_template.jinja", b"\xff"), "chat_template.jinja"),
    "odd tokenizer": (written("tokenizer.json", b"\xff"), "tokenizer.json"),
    "deep template": (
        written("chat_template.jinja", b"{{" + b"(" * 5000 + b")" * 5000 + b"}}"),
        "chat template",
    ),
    "boundless template": (
        written("chat_template.jinja", b"{{ 'x' * 9999999999 }}"),
        "the chat template cannot be used",
    ),
    "empty beyond count": (with_empty([1 << 63, 0]), "model.safetensors"),
    "empty beyond strides": (with_empty([0, 1 << 62, 1 << 62]), "model.safetensors"),
    "window beyond count": (
        configured(architectures=["MistralForCausalLM"], sliding_window=1 << 70),
        "sliding_window",
    ),
    "more experts than any": (
        configured(architectures=["Qwen3MoeForCausalLM"], **EXPERTS),
        "config.json",
    ),
    "panic": (rewritten("tokenizer.json", panicking), "tokenizer.json"),
    "no tokens": (rewritten("tokenizer.json", emptied), "tokenizer.json"),
    "tokens beyond the model": (rewritten("tokenizer.json", with_a_gap), "tokenizer"),
    "other depth": (configured(num_hidden_layers=40), "tensors missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_directory_is_refused_in_one_line_that_says_where(
    tiny_model: Path, name: str
) -> None:
    change, place = BROKEN[name]
    change(tiny_model)
    reason = refusal_of(tiny_model)
    assert place in reason
    assert "\n" not in reason
    assert len(reason) < 500


def cut_and_filled(content: dict[str, Any]) -> None:
    """As a tokenizer is saved that was used to train."""
    how = {"direction": "Right", "strategy": "LongestFirst"}
    content["truncation"] = {**how, "max_length": 8, "stride": 0}
    filling = {"pad_id": 0, "pad_type_id": 0, "pad_token": "x", "pad_to_multiple_of": None}
    content["padding"] = {**filling, "direction": "Right", "strategy": {"Fixed": 64}}


@pytest.mark.anyio
async def test_a_prompt_is_read_whole_whatever_its_tokenizer_was_trained_with(
    tiny_model: Path,
) -> None:
    prompt = {"prompt": "A long prompt, of which not one word may be lost on its way."}
    found = []
    for _ in range(2):
        async with served(tiny_model) as place, client_of(place.engine) as client:
            found.append((await client.post("/tokenize", json=prompt)).json())
        rewritten("tokenizer.json", cut_and_filled)(tiny_model)
    assert found[0]["count"] > 8
    assert found[1] == found[0]
