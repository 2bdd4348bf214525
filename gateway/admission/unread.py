"""Reasons why a request was not fully inspected, in words for its caller and the record. Pure."""

from collections.abc import Sequence


_OPAQUE = "opaque:"


def unread(reasons: Sequence[str]) -> str:
    """An inspection's `incomplete_reasons` in words, such as `image, deadline`; empty of none."""
    return ", ".join(reason.removeprefix(_OPAQUE).replace("-", " ") for reason in reasons)


def told_unread(reasons: Sequence[str]) -> str:
    """A sentence behind a refusal's reason; empty where everything was read."""
    return f" It counts as S4 because not all was read: {unread(reasons)}." if reasons else ""
