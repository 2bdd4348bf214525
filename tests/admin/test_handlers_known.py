"""Listeners of tests are built sooner beside the Litestar that is known, and beside others too."""

from functools import partial

import pytest
from litestar import Litestar, get, post
from litestar.datastructures import MutableScopeHeaders
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.testing import TestClient
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from tests.admin.handlers_known import built


@get("/told")
async def told(word: FromQuery[str]) -> str:
    return word


def marking(app: ASGIApp) -> ASGIApp:
    """Counts in a header how often it stood before an answer."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders.from_message(message)
                headers["x-marks"] = str(int(headers.get("x-marks", "0")) + 1)
            await send(message)

        await app(scope, receive, say)

    return marked


@pytest.mark.parametrize("version", ["", "2.25.1", "2.26.0", "3.0.0"])
def test_a_listener_answers_the_same_whichever_litestar_built_it(version: str) -> None:
    with TestClient(built(lambda: Litestar([told], openapi_config=None), version)) as client:
        answers = [client.get(path) for path in ("/told?word=yes", "/told", "/untold")]

    assert [(each.status_code, each.text) for each in answers[:1]] == [(200, "yes")]
    assert [each.status_code for each in answers] == [200, 400, 404]


@get("/marked")
async def marked() -> str:
    return "marked"


@post("/marked", status_code=200)
async def posted(data: JSONBody[dict[str, str]]) -> str:
    return data["word"]


@post("/more", middleware=[marking])
async def more() -> str:
    return "more"


@pytest.mark.parametrize("is_of_all", [False, True])
@pytest.mark.parametrize("version", ["2.25.1", "2.26.0"])
def test_what_stands_before_a_handler_and_which_methods_there_are_is_the_same(
    version: str, *, is_of_all: bool
) -> None:
    before = [marking] if is_of_all else []
    application = built(
        lambda: Litestar([marked, posted, more], middleware=before, openapi_config=None), version
    )
    with TestClient(application) as client:
        answers = [
            client.options("/marked"),
            client.post("/marked", json={"word": "told"}),
            client.get("/marked"),
            client.delete("/marked"),
            client.options("/more"),
            client.post("/more"),
        ]

    marks = [each.headers.get("x-marks", "") for each in answers]
    assert [each.status_code for each in answers] == [204, 200, 200, 405, 204, 201]
    assert [each.text for each in answers[1:3]] == ["told", "marked"]
    assert answers[4].headers["allow"] == "OPTIONS, POST"
    assert {"OPTIONS", "GET"} <= set(answers[0].headers["allow"].split(", "))
    assert marks == (["1", "1", "1", "", "1", "2"] if is_of_all else ["", "", "", "", "", "1"])


def saying(said: str) -> Litestar:
    """Handlers of the same code each time, of which two have an address in common."""

    @get("/said/{word:str}")
    async def say(word: FromPath[str], mark: FromQuery[str]) -> str:
        return said + word + mark

    @post("/said/{word:str}", status_code=200)
    async def say_posted(word: FromPath[str]) -> str:
        return f"posted {said}{word}"

    return Litestar([say, say_posted], openapi_config=None)


def test_what_is_known_of_one_listener_is_nothing_of_what_another_closes_over() -> None:
    for said in ("first", "second"):
        with TestClient(built(partial(saying, said))) as client:
            asked = client.get("/said/w?mark=m")
            posted = client.post("/said/w")
            unmarked = client.get("/said/w")

        assert (asked.text, posted.text) == (f"{said}wm", f"posted {said}w")
        assert unmarked.status_code == 400


def test_beside_another_litestar_none_of_its_parts_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.admin.handlers_known.import_module", None)

    assert isinstance(built(lambda: Litestar([told], openapi_config=None), "2.26.0"), Litestar)
    with pytest.raises(TypeError):
        built(lambda: Litestar([told], openapi_config=None), "2.25.0")
