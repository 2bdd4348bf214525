"""From a rule to the requests that it held for, by a filter that stands in the address."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.oversight.searching import FILTER_CHARS_MAX, VALUES_MAX
from tests.admin.listener import Listener
from tests.admin.policies.people import WRITER, signed_in, staff
from tests.admin.policies.traffic import EXAMPLES, record_traffic


pytestmark = pytest.mark.anyio
RULE = "restricted-data-stays-home"
LIST = "/o/acme/policies"


async def test_a_rule_leads_to_the_newest_requests_that_it_held_for(listener: Listener) -> None:
    await staff(listener)
    ids = await record_traffic(listener, EXAMPLES * 8)
    held = [each for number, each in enumerate(ids) if number % len(EXAMPLES) == 1]
    async with signed_in(listener, WRITER) as wanda:
        _, page = await wanda.send("GET", LIST)
        links = re.findall(
            r'<a href="([^"]+)">(\d+)<span[^>]*> requests that ([^<]+) matched', page
        )
        found = {name: (unescape(href), int(count)) for href, count, name in links}
        href, count = found[RULE]
        _, listed = await wanda.send("GET", href)
        all_of_them, _ = found["simple-requests"]

    shown = re.findall(r'href="/o/acme/traffic/(req_\w+)[^"]*"', listed)
    assert count == len(held) == 8
    assert sorted(set(shown)) == sorted(held)
    (query,) = parse_qs(urlsplit(all_of_them).query)["q"]
    assert query.count("req_") <= VALUES_MAX
    assert len(query) <= FILTER_CHARS_MAX


async def test_a_rule_that_held_for_many_leads_to_so_many_as_a_filter_takes(
    listener: Listener,
) -> None:
    await staff(listener)
    ids = await record_traffic(listener, EXAMPLES[1:2] * (VALUES_MAX + 5))
    async with signed_in(listener, WRITER) as wanda:
        _, page = await wanda.send("GET", LIST)
        (href,) = re.findall(
            rf'<a href="([^"]+)">\d+<span[^>]*> requests that {RULE} matched', page
        )
        status, listed = await wanda.send("GET", unescape(href))

    assert status.status == 200
    assert set(re.findall(r'href="/o/acme/traffic/(req_\w+)[^"]*"', listed)) == set(
        ids[-VALUES_MAX:]
    )
    assert f"links to at most the newest {VALUES_MAX} of them" in page
