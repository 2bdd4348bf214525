"""The erasing process and the worker have different clocks: data under way is not kept."""

import asyncio
from pathlib import Path

import openai
import pytest

from gateway.cli.audit.custody import subject_of
from gateway.clock import SystemClock
from tests.faults.test_erased_at_vendors import Desk
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(120)]


class OwnDesk(Desk):
    """Of what is kept here alone."""

    async def erase_at_once(self, user: str) -> None:
        subject = subject_of(self._settings, "acme", user) or ""
        async with self._erasures() as erasures:
            case = await erasures.cases.open("cora", "acme", subject, "gdpr", "T-7")
            await erasures.ask("cora", case)
            asked = await erasures.cases.found(case.id)
            await erasures.approve("anton", asked, "agreed with the ticket")


@pytest.mark.parametrize("ahead_s", [300, 0, -300])
async def test_an_answer_that_ends_after_its_end_user_was_erased_is_not_kept(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: int,
) -> None:
    hold, utc_us = asyncio.Event(), SystemClock.utc_us
    own_upstreams.openai.answer(Answer(hold=hold))
    more = "[inspection]\ndeadline_s = 30.0\n"
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
        ) as client:
            with monkeypatch.context() as changed:
                changed.setattr(
                    SystemClock, "utc_us", lambda clock: utc_us(clock) + ahead_s * 1_000_000
                )
                # Until the next beat its idea of the database's clock leaps with its own.
                await gateway.does(gateway.plane._shared.follow())
                asking = [
                    asyncio.create_task(
                        client.responses.create(model=GPT_TARGET, input="x", safety_identifier=user)
                    )
                    for user in ("ann", "bob")
                ]
                await own_upstreams.openai.called(2)
            await OwnDesk(gateway).erase_at_once("ann")
            hold.set()
            ann, bob = [await each for each in asking]
            assert (await client.responses.retrieve(bob.id)).id == bob.id
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(ann.id)
