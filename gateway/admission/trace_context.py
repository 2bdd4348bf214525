"""The caller's trace, by W3C Trace Context: the span that a request belongs to. Pure.

It is recorded, so that the span that a sink makes of the outcome lies in the caller's own trace. It
is sent to no upstream, and nothing is decided by it.
"""

import re
from collections.abc import Sequence

from classifiers.pii.labels import DataClass
from gateway.admission.withholding import holds_data


_HEADER = b"traceparent"
_VALID = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"
)
"""W3C Trace Context §3.2: a later version may say more behind these four."""
_DIGITS = re.compile(r"[0-9]{12}")
"""An Aadhaar has as many, the shortest number that is looked for: few traces hold such a row."""
_FIRST_VERSION = b"00-"
_FIRST_LENGTH_BYTES = 55


def trace_context(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """`TRACE-SPAN` of the caller, in hexadecimal; empty without one, and where it is none.

    Digits that are somebody's number are not recorded here either, whatever they are called.
    """
    if _HEADER not in dict(headers):  # One call for all of them: few requests have it.
        return ""
    said = [value for name, value in headers if name == _HEADER]
    if len(said) != 1:
        return ""
    value = said[0]
    found = _VALID.fullmatch(value)
    if found is None or (value.startswith(_FIRST_VERSION) and len(value) != _FIRST_LENGTH_BYTES):
        return ""
    trace, span = found[1].decode("ascii"), found[2].decode("ascii")
    if _DIGITS.search(f"{trace} {span}") and holds_data(f"{trace} {span}", DataClass.S3):
        return ""
    return f"{trace}-{span}"
