"""A provider at a cloud, in the pages: where it is asked, its proof, no column out of sight."""

from pathlib import Path

import pytest

from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.seeding import PASSWORD, person
from tests.admin.test_desk_screens import OUT_OF_SIGHT


pytestmark = pytest.mark.anyio
CLOUD = """
[providers.claude-eu]
kind = "bedrock"
region = "eu-central-1"
jurisdiction = "eu"
identity = "ambient"
cross_region = true
[targets.claude-eu]
provider = "claude-eu"
model = "eu.anthropic.claude-opus-5-5-v1:0"
catalogue = "claude-opus-5-5"
"""


async def test_a_cloud_says_its_region_and_its_long_model_leaves_the_columns_in_sight(
    tmp_path: Path,
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"
    async with Listener(tmp_path, url, CLOUD) as listener:
        await person(listener, "ada", "platform_admin")
        async with window(listener) as seen:
            await seen.sign_in("ada", PASSWORD)
            await seen.open("/models")
            assert await seen.page.evaluate(OUT_OF_SIGHT) == []
            await seen.open("/models/providers/claude-eu")
            facts = await seen.page.inner_text("dl.facts")
            assert "eu-central-1, and others that the cloud chooses" in facts
            assert "found where the workers run" in facts
