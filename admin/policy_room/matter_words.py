"""Describes in a few words what waits for a second person. Pure."""

from typing import Final

from gateway.store.custody.orders import Hold, Reveal
from gateway.store.erasure.cases import ErasureCase


SUBJECT_CHARS: Final = 12


def reading_of(reveal: Reveal) -> str:
    """What somebody asks to read, and for how long."""
    minutes = "1 minute" if reveal.minutes == 1 else f"{reveal.minutes} minutes"
    return f"Read {reveal.request_id or 'all content'} for {minutes}"


def held_by(hold: Hold) -> str:
    """Whose content a hold keeps."""
    return f"end user {hold.subject[:SUBJECT_CHARS]}…" if hold.subject else "everybody"


def whose_content(case: ErasureCase) -> str:
    """In words; of an end user there is nothing but a digest."""
    if not case.subject:
        return f"all content of {case.organisation}"
    return f"the content of end user {case.subject[:SUBJECT_CHARS]}…"
