"""Refuses a rollout step if the state has changed since its author looked at it. Pure."""

from typing import Final

from msgspec import Struct

from gateway.errors import ChangedMeanwhile


NO_APPOINTMENT: Final = "none"


class Seen(Struct, frozen=True):
    """What somebody saw; None for each part that they do not state."""

    live: int | None = None
    """The version that was live, 0 for none."""
    canary: int | None = None
    """The same for the canary."""
    waiting: str | None = None
    """The id of what was scheduled for the version, `none` if nothing was."""


UNSEEN: Final = Seen()


def require_live(number: int, seen: int | None) -> None:
    """A step was chosen in view of a live version, which must still be live.

    Both are 0 for none; `seen` is None if nobody says what they saw.

    Raises:
        ChangedMeanwhile: another one is live by now.
    """
    if seen is not None and number != seen:
        now = f"version {number} is live by now" if number else "no version is live any more"
        raise ChangedMeanwhile(f"{now}: look at what this would change", parameter="live")


def require_canary(number: int, seen: int | None) -> None:
    """The same for the canary: one that did harm is withdrawn automatically, and others end.

    Raises:
        ChangedMeanwhile: another one is a canary by now, or none any more.
    """
    if seen is not None and number != seen:
        now = f"version {number} is a canary by now" if number else f"version {seen} is a canary no"
        more = "" if number else " more"
        raise ChangedMeanwhile(f"{now}{more}: look at how it did", parameter="canary")


def require_waiting(schedule: str, seen: str | None) -> None:
    """The same for what is scheduled for the version; `schedule` is empty for nothing.

    Raises:
        ChangedMeanwhile: somebody scheduled it otherwise, or called it off.
    """
    if seen is not None and (schedule or NO_APPOINTMENT) != seen:
        now = "it was scheduled meanwhile" if schedule else "nothing is scheduled for it any more"
        raise ChangedMeanwhile(f"{now}: look at what waits", parameter="waiting")
