"""Signs for numbers that stand at a number and are none of its digits: of a list, a note, a count.

`①4111…` and `4111…²` are written without a blank. The ASCII view reads such signs as digits, since
a number can be written in them; here they are the ends of what stands beside them.
"""

import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.decoded import Change
from classifiers.pii.normalise import HAN_DIGITS


_SIGN: Final = (
    "[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u2079\u2080-\u2089\u2150-\u2189\u2460-\u249b"
    "\u24ea-\u24ff\u2776-\u2793\u3021-\u3029\u3192-\u3195\u3220-\u3229\u3248-\u324f\u3251-\u325f"
    f"\u3280-\u3289\u32b1-\u32bf\U0001f100-\U0001f10c{''.join(HAN_DIGITS)}]"
)
_BEFORE: Final = rf"(?P<before>{_SIGN}{{1,3}})(?=\d{{2}}|[A-Za-z]{{2}}\d{{2}}|[A-Za-z]{{5}}\d)"
_BEHIND: Final = rf"(?<=\d)(?P<last>[\dA-Za-z])(?P<behind>{_SIGN}{{1,3}})"
_AT_A_NUMBER = re.compile(f"{_BEHIND}|{_BEFORE}")


def stands_at_a_number(text: str) -> bool:
    """Whether such a sign adjoins digits of another kind."""
    return _AT_A_NUMBER.search(text) is not None


def apart(text: str) -> Iterator[Change]:
    """A blank for each of them."""
    for found in _AT_A_NUMBER.finditer(text):
        if found["before"]:
            yield found.start(), found.end(), " "
        else:
            # A number is found in this view that owes it something: its last digit does.
            yield *found.span("last"), found["last"]
            yield *found.span("behind"), " "
