"""What serving a model directory would take, without serving it."""

import argparse
import sys
from pathlib import Path

import torch

from local_engine.model.errors import ModelRefused
from local_engine.model.loader import empty_decoder, stored_tensors
from local_engine.model.manifest import MANIFEST_NAME, open_model, public_key_of
from local_engine.runner.memory import BLOCK_SIZE
from local_engine.text.tokenizer import check_tokenizer


def describe_directory(directory: Path, public_key: bytes | None = None) -> list[tuple[str, str]]:
    """Facts in words; raises `ModelRefused` for what would not be served."""
    with open_model(directory, public_key) as files:
        decoder = empty_decoder(files)
        spec = decoder.spec
        stored_tensors(files, decoder)
        check_tokenizer(files, spec.vocab_size)
        digest, has_manifest = files.digest, MANIFEST_NAME in files
    count = sum(p.numel() for p in {id(p): p for p in decoder.parameters()}.values())
    size = getattr(torch, spec.dtype).itemsize
    per_token = spec.kv_bytes_per_token(size)
    session = per_token * spec.context_window
    return [
        ("digest", digest),
        ("manifest", "every file is as it says" if has_manifest else "none: nothing to compare"),
        ("parameters", f"{count:,}"),
        ("weights", f"{count * size:,} bytes as {spec.dtype}"),
        ("keys and values", f"{per_token:,} bytes per token, {BLOCK_SIZE} tokens per block"),
        ("longest context", f"{spec.context_window:,} tokens, {session:,} bytes per session"),
    ]


def main(arguments: list[str]) -> int:
    """Print the facts; status 2 for a directory that would not be served."""
    parser = argparse.ArgumentParser(prog="gatewright engine check", description=__doc__)
    parser.add_argument("model", type=Path, help="model directory")
    parser.add_argument("--model-public-key", default="", help="Ed25519 in hex")
    options = parser.parse_args(arguments)
    try:
        facts = describe_directory(options.model, public_key_of(options.model_public_key))
    except ModelRefused as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name, value in facts:
        sys.stdout.write(f"{name:<16} {value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
