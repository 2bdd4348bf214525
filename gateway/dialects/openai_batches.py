"""Files and batches in OpenAI's words. Pure: nouns in, JSON out, and lines of a file in."""

from collections.abc import Sequence
from typing import Any

from gateway.batches import KeptFile


US_PER_S = 1_000_000


def file_object(file: KeptFile) -> dict[str, Any]:
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_us // US_PER_S,
        "expires_at": file.expires_us // US_PER_S,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def list_object(items: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list, with the ids by which a client asks for the next."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }
