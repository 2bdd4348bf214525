"""What is said of a shared place that is away."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.store.shared_place import why_away


@pytest.mark.parametrize(
    ("error", "said"),
    [
        # As servers say it of a command that was renamed or is not theirs.
        (
            ResponseError("unknown command 'EVALSHA', with args beginning with: 'ab' '{key:k7}' "),
            "unknown command 'EVALSHA'",
        ),
        (
            ResponseError("unknown command `SET`, with args beginning with: `name`, `what`, "),
            "unknown command `SET`",
        ),
        (RedisConnectionError("Connection refused.\nmore"), "Connection refused."),
        (RedisTimeoutError("Timeout reading"), "it did not answer within 0.5 s"),
        (OSError(), "it did not answer within 0.5 s"),
    ],
)
def test_the_reason_names_no_key_and_no_value(error: Exception, said: str) -> None:
    assert why_away(error, 0.5) == said
