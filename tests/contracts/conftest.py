"""What is shared through a server is tested where there is one; `test_rates` sees that there is."""

from tests.redis_server import SERVER


collect_ignore = [] if SERVER else ["test_shared_answers.py"]
