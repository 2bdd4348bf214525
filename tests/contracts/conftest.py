"""What is shared through a server is tested where there is one; `test_rates` sees that there is."""

import os

from tests.redis_server import SERVER, speaks_tls


SPEAKS_TLS = speaks_tls()
assert SPEAKS_TLS or "GATEWRIGHT_TEST_SERVERS" not in os.environ
collect_ignore = [
    *([] if SERVER else ["test_shared_answers.py"]),
    *([] if SPEAKS_TLS else ["test_shared_answers_over_tls.py"]),
]
