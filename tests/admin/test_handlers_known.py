"""Listeners of tests are built sooner beside the Litestar that is known, and beside others too."""

import pytest
from litestar import Litestar, get
from litestar.params import FromQuery
from litestar.testing import TestClient

from tests.admin.handlers_known import built


@get("/told")
async def told(word: FromQuery[str]) -> str:
    return word


@pytest.mark.parametrize("version", ["", "2.25.1", "2.26.0", "3.0.0"])
def test_a_listener_answers_the_same_whichever_litestar_built_it(version: str) -> None:
    with TestClient(built(lambda: Litestar([told], openapi_config=None), version)) as client:
        answers = [client.get(path) for path in ("/told?word=yes", "/told", "/untold")]

    assert [(each.status_code, each.text) for each in answers[:1]] == [(200, "yes")]
    assert [each.status_code for each in answers] == [200, 400, 404]


def test_beside_another_litestar_none_of_its_parts_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.admin.handlers_known.import_module", None)

    assert isinstance(built(lambda: Litestar([told], openapi_config=None), "2.26.0"), Litestar)
    with pytest.raises(TypeError):
        built(lambda: Litestar([told], openapi_config=None), "2.25.0")
