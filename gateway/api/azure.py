"""Azure OpenAI's paths as aliases of OpenAI's; the deployment in a path is a model's name.

Nothing else is read from such a path: no resource, no region, no version of an API. The name goes
where a body's `model` goes, so that the policy decides about it as about any other.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from litestar.types import Scope
from msgspec import Struct

from gateway.dialects.bodies.body import patch
from gateway.dialects.bodies.strict_json import decode_object, invalid
from gateway.errors import RequestInvalid


PREFIX: Final = "/openai/"
_DEPLOYED = re.compile(rb"/openai/deployments/([^/]+)/(chat/completions|completions|embeddings)")
_CURRENT = re.compile(
    rb"/openai/v1/"
    rb"((?:chat/completions|completions|embeddings|responses|conversations|models|files|batches)"
    rb"(?:/.*)?)"
)
_DATED = re.compile(rb"/openai/((?:responses|conversations|models|files|batches)(?:/.*)?)")
"""Paths that the versioned interface has besides its deployments."""
_TWICE = re.compile(r"/(?:v1|openai|openai/v1)/openai/")
_BARE = re.compile(r"/(?:v1/|openai/v1/)?deployments/")
_NAMELESS = re.compile(r"/openai/(?:chat/completions|completions|embeddings)/?")
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?|preview|latest|v1", re.ASCII)
_FIELDS_MAX: Final = 32
VERSION: Final = "api-version"


class Address(Struct, frozen=True):
    """What a path of Azure OpenAI's means here."""

    path: bytes
    """OpenAI's own path for the same operation; a name in it is as it was sent."""
    deployment: bytes
    """As it was sent; empty if the body names the model."""
    query: bytes

    async def body(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """The body, with the deployment as its model if it names none.

        Raises:
            RequestInvalid: the deployment or version is invalid, the body is no JSON object, or it
                names a model that is not the deployment, so that either could be meant.
        """
        _check_version(self.query)
        if not self.deployment:
            return await read()
        try:
            model = unquote_to_bytes(self.deployment).decode()
        except UnicodeDecodeError:
            reason = "The deployment in the path is not UTF-8."
            raise RequestInvalid(reason, parameter="model") from None
        raw = await read()
        named = decode_object(raw).get("model")
        if named is None:
            return patch(raw, {"model": msgspec.json.encode(model)})
        if named != model:
            raise invalid("model", "The body names another model than the path; leave one out")
        return raw


def address_of(scope: Scope) -> Address | None:
    """What the path means; None if it leads nowhere.

    It is read as it was sent, so that an escaped slash belongs to a name and does not end it.
    """
    raw: bytes = scope["raw_path"] or b""
    query: bytes = scope["query_string"]
    if found := _DEPLOYED.fullmatch(raw):
        return Address(b"/v1/" + found[2], found[1], query)
    found = _CURRENT.fullmatch(raw) or _DATED.fullmatch(raw)
    if found is None:
        return None
    return Address(b"/v1/" + found[1], b"", query)


def _check_version(query: bytes) -> None:
    """Raises RequestInvalid for an invalid version; all valid ones mean the same."""
    try:
        fields = parse_qsl(
            query.decode("latin-1"), keep_blank_values=True, max_num_fields=_FIELDS_MAX
        )
    except ValueError:
        raise RequestInvalid("The query has too many fields.", parameter=VERSION) from None
    asked = {value for name, value in fields if name.lower() == VERSION}
    if len(asked) > 1:
        raise RequestInvalid("The query asks for two API versions.", parameter=VERSION)
    if not all(map(_VERSION.fullmatch, asked)):
        raise RequestInvalid(
            "An API version is a date such as 2024-10-21, with or without -preview. Any will do, "
            "and none, too: all mean the same here.",
            parameter=VERSION,
        )


def endpoint_hint(path: str) -> str:
    """What an Azure client's endpoint lacks or has too much; empty if that is not the fault."""
    if _TWICE.match(path):
        return " Azure OpenAI's clients take the gateway's bare address as their endpoint."
    if _BARE.match(path):
        return " The base URL of a deployment begins with /openai/deployments/ here."
    if _NAMELESS.fullmatch(path):
        return " Name a deployment in the path, or end the base URL with /openai/v1 or /v1."
    return ""
