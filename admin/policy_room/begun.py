"""What an editor's form began from: a draft's revision, and the text it had. Pure.

Each draft of a level counts its revisions from 1, and without a draft an edit begins from the live
version: a number alone says neither whose draft was seen nor which version was live. A text that
went away and came back counts as the same one: saving over it loses nothing. A draft that is
replaced by one of the same number between the look and the write is not noticed: that takes two
deeds of others within a few milliseconds.
"""

from typing import Final

from admin.policy_room.desk import Working, digest_of
from admin.policy_room.room import number_in
from gateway.store.policies.drafts import DraftChanged


REVISION: Final = "revision"


def revision_in(form: dict[str, str], working: Working) -> int:
    """The revision that a form says it began from, which is looked at where something is saved.

    Raises:
        DraftChanged: another text stands by now than the form's page showed.
        RequestInvalid: it is no number.
    """
    number, _, seen = form.get(REVISION, "").partition(".")
    revision = number_in({REVISION: number}, REVISION)
    require_standing(seen, working)
    return revision


def require_standing(seen: str, working: Working) -> None:
    """`seen` is a text's SHA-256, empty where nobody says; raises DraftChanged for another one."""
    if seen and seen.lower() != digest_of(working.text):
        raise DraftChanged(working.draft)
