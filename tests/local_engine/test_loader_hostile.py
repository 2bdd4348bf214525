"""Model directories that are broken or hostile: one line that names the file, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_engine.model import manifest
from local_engine.model.errors import ModelRefused
from local_engine.model.safetensors_file import MAX_TENSORS
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


def doubled(name: str, key: str) -> Change:
    """A key a second time, with what it has anyway."""

    def double(directory: Path) -> None:
        path = directory / name
        content = b'{"files": {"a": "b"}, "weight_map": {"a": "b"}}'
        if path.exists():
            content = path.read_bytes().rstrip()
        again = json.dumps({key: json.loads(content)[key]}).encode()
        path.write_bytes(content[:-1] + b", " + again[1:])

    return double


def crowded(directory: Path) -> None:
    """More tensors in a header than any model has, all of them empty."""
    entry = '{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
    header = ", ".join(f'"{number}": {entry}' for number in range(MAX_TENSORS + 1))
    text = f"{{{header}}}".encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def written(name: str, content: bytes) -> Change:
    def write(directory: Path) -> None:
        (directory / name).write_bytes(content)

    return write


def padded(name: str, value: bytes) -> Change:
    """One field more, of which nobody reads the value."""

    def pad(directory: Path) -> None:
        path = directory / name
        path.write_bytes(path.read_bytes().rstrip()[:-1] + b', "more": ' + value + b"}")

    return pad


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


def ruled(**rules: Any) -> Change:
    return rewritten("tokenizer.json", lambda content: content.update(rules))


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def with_the_first(**fields: Any) -> Change:
    """Other words in the header about the first tensor of the weights."""

    def change(directory: Path) -> None:
        path = directory / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        header[min(header)].update(fields)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    return change


def overflowing(directory: Path) -> None:
    path = directory / "model.safetensors"
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:length] + b"\xff" * (len(content) - length))


def far_numbered(content: dict[str, Any]) -> None:
    content["model"]["vocab"]["far away"] = (1 << 31) - 1


def all_alike(content: dict[str, Any]) -> None:
    content["model"]["vocab"] = dict.fromkeys(content["model"]["vocab"], 5)


TEMPLATE = {"type": "TemplateProcessing", "pair": []}
MANY = [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}] * 1000
ENDS = {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}
DOUBLING = {"type": "Sequence", "normalizers": [replaced({"String": "e"}, "ee")] * 25}
EVIL = {"type": "Split", "pattern": {"Regex": "(x+)+x?" * 4000}, "behavior": "Isolated"}
EXPERTS = {"num_experts": 1 << 20, "moe_intermediate_size": 8}
BROKEN: dict[str, tuple[Change, str]] = {
    "deep config": (deepened("config.json"), "config.json"),
    "deep wishes": (deepened("generation_config.json"), "generation_config.json"),
    "deep index": (deepened("model.safetensors.index.json"), "model.safetensors.index.json"),
    "deep manifest": (deepened("manifest.json"), "manifest.json"),
    "deep tokenizer": (deepened("tokenizer_config.json"), "tokenizer_config.json"),
    "deep header": (with_header(DEEP), "model.safetensors"),
    "doubled config": (
        doubled("config.json", "vocab_size"),
        "config.json cannot be read: it has the key 'vocab_size' twice",
    ),
    "doubled wishes": (
        doubled("generation_config.json", "files"),
        "generation_config.json cannot be read: it has the key 'files' twice",
    ),
    "doubled index": (
        doubled("model.safetensors.index.json", "files"),
        "model.safetensors.index.json cannot be read: it has the key 'files' twice",
    ),
    "doubled manifest": (
        doubled("manifest.json", "weight_map"),
        "manifest.json cannot be read: it has the key 'weight_map' twice",
    ),
    "doubled tokenizer": (
        doubled("tokenizer_config.json", "eos_token"),
        "tokenizer_config.json cannot be read: it has the key 'eos_token' twice",
    ),
    "doubled rules": (
        doubled("tokenizer.json", "normalizer"),
        "tokenizer.json cannot be read: it has the key 'normalizer' twice",
    ),
    "doubled header": (
        with_header(b'{"dtype": "F32", "dtype": "F16", "shape": [0], "data_offsets": [0, 0]}'),
        "the header of model.safetensors cannot be read: it has the key 'dtype' twice",
    ),
    "crowded header": (crowded, "model.safetensors names more than 131072 tensors"),
    "odd bytes": (written("config.json", b'{"architectures": ["\xff"]}'), "config.json"),
    "odd bytes unread": (padded("config.json", b'"\xff"'), "config.json cannot be read"),
    "long number unread": (padded("config.json", b"9" * 5000), "config.json cannot be read"),
    "odd template": (written("chat_template.jinja", b"\xff"), "chat_template.jinja"),
    "odd tokenizer": (written("tokenizer.json", b"\xff"), "tokenizer.json"),
    "deep template": (
        written("chat_template.jinja", b"{{" + b"(" * 5000 + b")" * 5000 + b"}}"),
        "chat template",
    ),
    "boundless template": (
        written("chat_template.jinja", b"{{ 'x' * 9999999999 }}"),
        "chat_template.jinja: the chat template cannot be used",
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
    "heads turned in part": (configured(partial_rotary_factor=0.5), "partial_rotary_factor"),
    "heads turned in part by name": (
        configured(rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.25}),
        "partial_rotary_factor",
    ),
    "layers without number": (
        configured(
            architectures=["MistralForCausalLM"], sliding_window=4, num_hidden_layers=1 << 33
        ),
        "config.json: num_hidden_layers",
    ),
    "experts that no file holds": (
        configured(architectures=["Qwen3MoeForCausalLM"], num_experts=1 << 16),
        "tensors missing",
    ),
    "shape of many dimensions": (with_the_first(shape=[1 << 62] * 200_000), "model.safetensors"),
    "a name of many characters": (with_the_first(dtype="X" * 1_000_000), "model.safetensors"),
    "a name that moves the cursor": (configured(model_name="a\n\x1b[31mb"), "model_name"),
    "weights that are no numbers": (overflowing, "no numbers as float32"),
    "a token far away": (rewritten("tokenizer.json", far_numbered), "tokenizer.json"),
    "tokens of one number": (rewritten("tokenizer.json", all_alike), "tokenizer.json"),
    "texts that double": (ruled(normalizer=DOUBLING), "tokenizer.json: normalizer"),
    "texts that grow": (
        ruled(normalizer=replaced({"Regex": ""}, "x" * 65)),
        "tokenizer.json: normalizer",
    ),
    "a place that is nowhere": (ruled(normalizer=replaced({"Regex": ""}, "x")), "tokenizer.json"),
    "a long beginning": (
        ruled(normalizer={"type": "Prepend", "prepend": "x" * 1_000_000}),
        "tokenizer.json: normalizer",
    ),
    "many ends": (
        ruled(post_processor={**TEMPLATE, "single": MANY, "special_tokens": ENDS}),
        "tokenizer.json: post_processor",
    ),
    "a long expression": (ruled(pre_tokenizer=EVIL), "tokenizer.json: pre_tokenizer"),
    "a decoder without end": (
        ruled(decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}] * 5000}),
        "tokenizer.json: decoder",
    ),
    "panic": (rewritten("tokenizer.json", panicking), "tokenizer.json"),
    "no tokens": (rewritten("tokenizer.json", emptied), "tokenizer.json"),
    "tokens beyond the model": (rewritten("tokenizer.json", with_a_gap), "tokenizer"),
    "other depth": (configured(num_hidden_layers=40), "tensors missing"),
    "other width": (with_the_first(shape=[3, 512, 32]), "model.safetensors"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_directory_is_refused_in_one_line_that_says_where(
    tiny_model: Path, name: str
) -> None:
    change, place = BROKEN[name]
    change(tiny_model)
    reason = refusal_of(tiny_model)
    assert place in reason
    assert reason.isprintable()
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


@pytest.mark.anyio
async def test_a_text_that_the_tokenizer_gives_up_on_is_refused_and_ends_nothing_else(
    tiny_model: Path,
) -> None:
    """Native code panics there, which is no `Exception`."""
    evil = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    ruled(pre_tokenizer={**evil, "invert": False})(tiny_model)
    prompt = "a" * 40 + "!"
    chat = [{"role": "user", "content": prompt}]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": prompt}),
        ("/v1/chat/completions", {"messages": chat}),
        ("/v1/completions", {"prompt": "b", "bad_words": [prompt]}),
        ("/v1/embeddings", {"input": prompt}),
        ("/tokenize", {"prompt": prompt}),
    ]
    async with served(tiny_model) as place, client_of(place.engine) as client:
        for path, fields in asked:
            response = await client.post(path, json={"model": "tiny", **fields})
            assert response.status_code == 400, path
            assert "the tokenizer cannot read this text" in response.json()["error"]["message"]
        answered = await client.post("/v1/completions", json={"model": "tiny", "prompt": "b"})
        assert answered.status_code == 200


def test_a_context_that_no_session_can_have_takes_no_memory(tiny_model: Path) -> None:
    configured(max_position_embeddings=1 << 24)(tiny_model)
    ours, theirs = socket_pair()
    with ours, theirs:
        options = WorkerOptions(model=str(tiny_model), device="cpu", kv_memory_bytes=1 << 20)
        worker, ready = load_worker(theirs, options)
    (cos, _), *_ = worker._runner._decoder._rotations
    assert len(cos) == ready.context_window < 1 << 20


def test_without_a_manifest_only_files_that_are_read_are_hashed(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tiny_model / "pytorch_model.bin").write_bytes(b"another format of the same")
    hashed: list[int] = []

    def counted(descriptor: int) -> str:
        hashed.append(descriptor)
        return "00"

    monkeypatch.setattr(manifest, "_sha256", counted)
    with manifest.open_model(tiny_model) as files:
        assert len(hashed) == len(files.names()) - 1
