"""Whoever asks about a person finds what was refused to them as well as what was answered."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

ANSWERED: dict[str, Any] = {
    "model": "auto",
    "messages": [{"role": "user", "content": "Good morning"}],
}
FETCHED = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
REFUSED: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": [FETCHED]}]},  # Refused for a place it names,
    {"model": "no-such-model"},  # and for its model.
]
UNREADABLE = {"stop": ["x"] * 10_000}


async def test_a_refusal_names_its_end_user_as_an_answer_does(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        Upstreams() as upstreams,
        aiohttp.ClientSession() as http,
        RunningGateway(tmp_path, sqlite_url, upstreams) as gateway,
    ):
        url = f"{gateway.url}/v1/chat/completions"
        headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
        for user in ("inge", "omar"):
            for change in ({}, *REFUSED, UNREADABLE):
                body = ANSWERED | change | {"user": user}
                async with http.post(url, headers=headers, json=body) as answer:
                    assert (answer.status == 200) == (not change)
        records = [each for each in await gateway.records() if each.stage == "outcome"]

    named = [(each.status, each.subject) for each in records]
    answered = [subject for status, subject in named if status == "ok"]
    assert len(set(answered)) == 2
    assert all(answered)
    for subject in answered:
        assert named.count(("refused", subject)) == len(REFUSED)
    assert named.count(("refused", "")) == 2
    assert not any("inge" in subject or "omar" in subject for subject in answered)
