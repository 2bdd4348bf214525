"""Metadata that callers attach to stored resources: a few short texts by name."""

from collections.abc import Mapping
from typing import Final

from gateway.dialects.bodies.strict_json import invalid


METADATA_MAX: Final = 16
METADATA_KEY_MAX: Final = 64
METADATA_VALUE_MAX: Final = 512


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises RequestInvalid if it is more than the vendor accepts."""
    if len(metadata) > METADATA_MAX:
        raise invalid("metadata", f"At most {METADATA_MAX} pairs")
    for name, value in metadata.items():
        if not 1 <= len(name) <= METADATA_KEY_MAX or len(value) > METADATA_VALUE_MAX:
            reason = f"Names have up to {METADATA_KEY_MAX} letters, values {METADATA_VALUE_MAX}"
            raise invalid("metadata", reason)
