"""Decodes JSON of a model directory; what is wrong with it is one refusal that names the file."""

from typing import TypeVar

import msgspec

from local_engine.model.errors import ModelRefused


_Kind = TypeVar("_Kind")


def decode_json(name: str, content: bytes, kind: type[_Kind]) -> _Kind:
    """`content` of the file `name` as `kind`; raises `ModelRefused`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelRefused(f"{name} cannot be read: {error}") from error
    except RecursionError as error:
        raise ModelRefused(f"{name} cannot be read: it is nested too deeply") from error
