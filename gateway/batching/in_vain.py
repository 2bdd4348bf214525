"""What was asked of vendors in vain, by parcel: waiting for them to be ready does not count."""

from collections import Counter


class InVain:
    """Counts for one process; who takes a parcel over begins anew, and asks once more often."""

    def __init__(self) -> None:
        self._times: Counter[tuple[str, str]] = Counter()

    def is_enough(self, parcel_id: str, state: str, times: int) -> bool:
        """Count once more; whether it was in vain so often before, in this state."""
        self._times[parcel_id, state] += 1
        return self._times[parcel_id, state] > times

    def went_well(self, parcel_id: str, state: str) -> None:
        """Once it did: what was in vain before says nothing any more."""
        self._times.pop((parcel_id, state), None)

    def forget(self, parcel_id: str) -> None:
        for key in [key for key in self._times if key[0] == parcel_id]:
            del self._times[key]
