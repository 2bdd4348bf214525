"""The two readings of a disguised text: as it stands, and in plain ASCII.

Full-width letters, digits of another script and invisible marks hide an encoding as they hide a
number: whoever reads a percent sign and two full-width digits reads a character. Text read in this
way keeps its place in the original.
"""

from collections.abc import Iterator

from classifiers.pii.disguises import Disguise
from classifiers.pii.views.decoded import Decoded, with_changes
from classifiers.pii.views.normalise import View


def readings(disguise: Disguise, text: str, view: View) -> Iterator[Decoded]:
    """The decoded readings of a disguise; the second only if it reads more than the first."""
    source = view.text if disguise.on_ascii else text
    changes = list(disguise.changes(source))
    if (decoded := with_changes(source, changes)) is not None:
        yield decoded
    # A view that equals its text is the text.
    if disguise.on_ascii or view.text == text:
        return
    folded = [
        (view.origin(start), view.origin_end(end), said)
        for start, end, said in disguise.changes(view.text)
    ]
    if not frozenset(changes).issuperset(folded):
        again = with_changes(text, folded)
        if again is not None:
            yield again
