"""A listener with recorded requests of two organisations, and deeds of people about them."""

import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.traffic.world import NOW_US, Asked, World


@pytest.fixture
async def world(listener: Listener, browser: Browser) -> World:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    made = World(listener)
    await made.open()
    other = World(listener, "umbrella")
    await other.open()
    for organisation, limit in (("acme", 5), ("acme", 9), ("umbrella", 7)):
        body = f'{{"account": "org:{organisation}", "limit_microusd": {limit}}}'
        answer, _ = await browser.send(
            "POST", f"/api/organisations/{organisation}/budgets", body=body
        )
        assert answer.status == 204
    await other.write(Asked(90))
    await made.write(*(Asked(number, ago_s=600 - number) for number in range(6)))
    return made
