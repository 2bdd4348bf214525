"""Number signs next to a number that are not its digits: of a list, a note or a count.

`①4111…` and `4111…²` are written without a blank. The ASCII view reads such signs as digits, since
a number can be written in them; here they end the number beside them.
"""

import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.views.decoded import Change
from classifiers.pii.views.normalise import HAN_DIGITS


# Months, hours and days, and what writes numbers in scripts beside the digits that they have: of
# Ethiopia, of merchants and coins, tallies. All that the view reads as a digit and is none (`Nd`).
_RARE: Final = (
    "\u0c78-\u0c7e\u1369-\u1371\u17f0-\u17f9\u19da\u32c0-\u32cb\u3358-\u3370\u33e0-\u33fe\ua6e6-\ua6ef"
    "\U00010107-\U0001010f\U00010142\U00010143\U00010148\U0001014f\U00010158-\U0001015f\U00010173"
    "\U0001018a\U000102e1-\U000102e9\U00010320\U00010321\U000103d1\U000103d2\U00010858-\U0001085a"
    "\U00010879-\U0001087d\U000108a7-\U000108ac\U000108fb\U000108fc\U00010916-\U0001091b"
    "\U000109c0-\U000109c8\U00010a40-\U00010a43\U00010a7d\U00010a9d\U00010aeb\U00010aec"
    "\U00010b58-\U00010b5b\U00010b78-\U00010b7b\U00010ba9-\U00010bac\U00010cfa\U00010cfb"
    "\U00010e60-\U00010e68\U00010f1d-\U00010f21\U00010f51\U00010fc5-\U00010fc8\U00011052-\U0001105a"
    "\U000111e1-\U000111e9\U00011c5a-\U00011c62\U00012400-\U0001246e\U00016e80-\U00016e96"
    "\U0001d2c0-\U0001d2d3\U0001d2e0-\U0001d2e9\U0001d360-\U0001d378\U0001e8c7-\U0001e8cf\U0001ec71-\U0001ecb2"
    "\U0001ed01-\U0001ed36"
)
_SIGN: Final = (
    "[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u2079\u2080-\u2089\u2150-\u2189\u2460-\u249b"
    "\u24ea-\u24ff\u2776-\u2793\u3021-\u3029\u3192-\u3195\u3220-\u3229\u3248-\u324f\u3251-\u325f"
    f"\u3280-\u3289\u32b1-\u32bf\U0001f100-\U0001f10c{_RARE}{''.join(HAN_DIGITS)}]"
)
_BEFORE: Final = rf"(?P<before>{_SIGN}{{1,3}})(?=\d{{2}}|[A-Za-z]{{2}}\d{{2}}|[A-Za-z]{{5}}\d)"
_BEHIND: Final = rf"(?<=\d)(?P<last>[\dA-Za-z])(?P<behind>{_SIGN}{{1,3}})"
_AT_A_NUMBER = re.compile(f"{_BEHIND}|{_BEFORE}")


def stands_at_a_number(text: str) -> bool:
    """Whether such a sign adjoins digits of another kind."""
    return _AT_A_NUMBER.search(text) is not None


def apart(text: str) -> Iterator[Change]:
    """A blank in place of each of them."""
    for found in _AT_A_NUMBER.finditer(text):
        if found["before"]:
            yield found.start(), found.end(), " "
        else:
            # A number is found in this view that owes it something: its last digit does.
            yield *found.span("last"), found["last"]
            yield *found.span("behind"), " "
