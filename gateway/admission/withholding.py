"""Finds personal data where only a name belongs, so that records do not repeat it. Pure."""

from typing import Final

from classifiers.pii.detect import find
from classifiers.pii.labels import DataClass, data_class_of


WITHHELD: Final = "[withheld]"
"""In its place."""


def holds_data(text: str, least: DataClass) -> bool:
    """Somebody's data, of this class or above.

    The address of a machine is not: it says where a caller wanted to go.
    """
    return any(
        data_class_of(each.label) >= least for each in find(text) if each.label != "IP_ADDRESS"
    )
