"""Says whether a row that was claimed for a while is free again, even if a clock was set back."""

from sqlalchemy import ColumnElement, or_


def is_unclaimed(claimed_us: ColumnElement[int], now_us: int, for_us: int) -> ColumnElement[bool]:
    """Whether nobody claimed it in the last `for_us`.

    A claim far in the future was made by a clock that was set back since: it holds nobody up.
    """
    return or_(claimed_us <= now_us - for_us, claimed_us >= now_us + for_us)
