"""What an upstream calls a call, as far as a record may repeat it. Pure."""

import re

from classifiers.pii.labels import DataClass
from gateway.admission.withholding import holds_data


_ROW = re.compile(r"[0-9](?:[._:-]?[0-9]){11,}")
"""An Aadhaar has as many digits, the shortest number that is looked for: few ids have such a row.

A shorter number without any letter never comes so far (`gateway.providers.egress.reply`).
"""
_BETWEEN = str.maketrans("", "", "._:-")


def without_numbers(ids: tuple[str, ...]) -> tuple[str, ...]:
    """Without those that hold somebody's number: an upstream may say what it was asked."""
    for each in ids:
        if _ROW.search(each):
            return tuple(each for each in ids if not _holds_number(each))
    return ids


def _holds_number(upstream_id: str) -> bool:
    rows = _ROW.findall(upstream_id)
    return any(holds_data(row.translate(_BETWEEN), DataClass.S3) for row in rows)
