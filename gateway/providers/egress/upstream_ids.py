"""Upstreams' own ids of a request, as far as a record may repeat them. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from classifiers.pii.labels import DataClass
from gateway.admission.withholding import holds_data


_WORD: Final = r"(?=[0-9A-Za-z._:-]{1,64}\Z)(?=.*[A-Za-z])[0-9A-Za-z].*"
"""Not a text, address, markup or mere number: it stays in a record for good."""
_ROW: Final = r"[0-9](?:[._:-]?[0-9]){11,}"
"""As long as an Aadhaar number, the shortest that is looked for: few ids have so many digits."""
_ID: Final = re.compile(_WORD)
_NUMBER: Final = re.compile(_ROW)
_PLAIN_ID: Final = re.compile(rf"(?=[0-9A-Za-z._:-]{{1,64}}\Z)(?!.*{_ROW}){_WORD}")
_BETWEEN: Final = str.maketrans("", "", "._:-")
_IDS_MAX, _IDS_SEEN_MAX = 2, 8
"""Azure gives a call two different ids."""


def ids_in(said: str, proofs: Iterable[bytes] = ()) -> tuple[str, ...]:
    """The first ids that are words without personal numbers: an upstream may echo a request.

    Empty if one of `proofs`, our credentials, occurs in the text.
    """
    for proof in proofs:
        if proof.decode() in said:
            return ()
    if _PLAIN_ID.match(said):
        return (said,)
    ids = dict.fromkeys(each for each in said.split(", ", _IDS_SEEN_MAX) if _may_be_repeated(each))
    return tuple(ids)[:_IDS_MAX]


def _may_be_repeated(said: str) -> bool:
    return bool(_ID.match(said)) and not any(
        holds_data(row.translate(_BETWEEN), DataClass.S3) for row in _NUMBER.findall(said)
    )
