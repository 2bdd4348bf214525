"""Files and batches: the nouns of work that is sent line by line and fetched later.

A file and a batch belong to a project and to nobody else. A batch goes from state to state as the
vendors' own do; its lines wait, run, and end exactly once.
"""

from typing import Literal

from msgspec import Struct


Project = tuple[str, str, str]
"""Organisation, workspace and project."""

FilePurpose = Literal["batch", "batch_output"]

ID_BYTES = 24
"""192 bits: nobody guesses an id, and who learns one still needs a key of its project."""


class KeptFile(Struct, frozen=True):
    """A file of a project; its content is read apart, piece by piece."""

    file_id: str
    project: Project
    key_id: str
    purpose: FilePurpose
    name: str
    size_bytes: int
    created_us: int
    expires_us: int

    def __repr__(self) -> str:
        return f"KeptFile({self.file_id})"  # Its name is content.


class PageOf(Struct, frozen=True):
    """Which part of a list is asked for, newest first unless `oldest_first`."""

    limit: int
    after: str = ""
    """The id behind which it begins."""
    before: str = ""
    """The id before which it ends."""
    oldest_first: bool = False
