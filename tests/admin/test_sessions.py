"""Sessions by themselves: what is kept of them and how many there may be."""

from admin.sessions import SESSIONS_MAX, Sessions
from gateway.clock import StoppedClock
from gateway.secrets.secret import Secret


def _signed_in(sessions: Sessions) -> str:
    session_id = sessions.sign_in("right")
    assert session_id is not None
    return session_id


def test_only_digests_of_session_ids_are_kept() -> None:
    sessions = Sessions(Secret("right"), StoppedClock())
    session_id = _signed_in(sessions)

    assert session_id not in repr(vars(sessions))
    assert sessions.is_signed_in(session_id)


def test_the_longest_idle_session_makes_room_when_there_are_too_many() -> None:
    clock = StoppedClock()
    sessions = Sessions(Secret("right"), clock)
    first = _signed_in(sessions)
    clock.advance(1)
    second = _signed_in(sessions)
    for _ in range(SESSIONS_MAX - 1):
        clock.advance(0.001)
        _signed_in(sessions)

    assert not sessions.is_signed_in(first)
    assert sessions.is_signed_in(second)


def test_two_sign_ins_are_two_sessions() -> None:
    sessions = Sessions(Secret("right"), StoppedClock())
    first, second = _signed_in(sessions), _signed_in(sessions)
    sessions.sign_out(first)

    assert not sessions.is_signed_in(first)
    assert sessions.is_signed_in(second)


def test_a_token_that_is_not_ascii_is_only_wrong() -> None:
    assert Sessions(Secret("right"), StoppedClock()).sign_in("žluťoučký") is None
