"""Accepts only one spelling of each path, so that no other gets past a server in front.

Such a server lets some paths through and not others, and compares them as they were sent, or after
normalising them in its own way. The framework finds a route under many spellings: doubled slashes,
one at the end, escaped letters. A path that is served under a second one slips past that server.
"""

import re
from typing import Final
from urllib.parse import unquote


_STEPS: Final = re.compile(r"(?:^|[/\\])\.{0,2}(?=$|[/\\])")
"""A part that is empty or dots: others go up there, or leave it out."""


def is_written_as(raw: bytes, template: str) -> bool:
    """Whether a path, as it was sent, is the one of its route (`/v1/models/{name}`).

    Only a name in it may have escapes, and slashes only where it is the end of the path. The route
    was found by the path without them, so as many parts mean that none was within a name.
    """
    parts, wanted = raw.decode("latin-1").split("/"), template.split("/")
    if len(parts) > len(wanted) and wanted[-1].startswith("{"):
        last = len(wanted) - 1
        parts[last:] = ["/".join(parts[last:])]
    return len(parts) == len(wanted) and all(map(_is_part, parts, wanted))


def _is_part(part: str, wanted: str) -> bool:
    if not wanted.startswith("{"):
        return part == wanted
    return not _STEPS.search(unquote(part))
