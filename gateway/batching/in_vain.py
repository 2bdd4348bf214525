"""Counts attempts at vendors that led nowhere, by parcel, and the time spent reading results.

Waiting until a vendor is ready does not count.
"""

from collections import Counter


class InVain:
    """Counts for one process; whoever takes a parcel over begins at zero and asks once more."""

    def __init__(self) -> None:
        self._times: Counter[tuple[str, str]] = Counter()
        self._read_s: dict[str, float] = {}

    def is_enough(self, parcel_id: str, state: str, times: int) -> bool:
        """Count once more; returns whether there were enough failures, in this state."""
        self._times[parcel_id, state] += 1
        return self._times[parcel_id, state] > times

    def went_well(self, parcel_id: str, state: str) -> None:
        """It succeeded: earlier failures no longer count."""
        self._times.pop((parcel_id, state), None)

    def has_read(self, parcel_id: str, lasted_s: float = 0.0) -> float:
        """For how many seconds its results were read, including these."""
        read_s = self._read_s.get(parcel_id, 0.0) + lasted_s
        if lasted_s:
            self._read_s[parcel_id] = read_s
        return read_s

    def forget(self, parcel_id: str) -> None:
        for key in [key for key in self._times if key[0] == parcel_id]:
            del self._times[key]
        self._read_s.pop(parcel_id, None)
