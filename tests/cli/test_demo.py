"""`gatewright demo` that cannot run says so in a line, at once, and leaves nothing behind."""

import socket
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.cli.operator import Operator


PORTS = {"8080": "data_plane.port", "8081": "admin.port", "8090": "providers.engine.base_url"}


@pytest.fixture
def sockets() -> Iterator[dict[str, socket.socket]]:
    """A port of this machine for each of the template's, bound."""
    bound = {port: socket.create_server(("127.0.0.1", 0)) for port in PORTS}
    yield bound
    for each in bound.values():
        each.close()


def _configured(folder: Path, sockets: dict[str, socket.socket]) -> Path:
    text = resources.files("gateway.cli").joinpath("template.toml").read_text("utf-8")
    for port, each in sockets.items():
        text = text.replace(port, str(each.getsockname()[1]))
    file = folder / "gatewright.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("taken", PORTS)
def test_a_port_that_something_has_is_named_with_its_setting(
    newcomer: Operator, sockets: dict[str, socket.socket], taken: str
) -> None:
    file = _configured(newcomer.folder, sockets)
    for port, each in sockets.items():
        if port != taken:
            each.close()
    place = f"127.0.0.1:{sockets[taken].getsockname()[1]}"
    ended = newcomer.starts("demo", "--folder", newcomer.folder)

    said = f"{file}: {PORTS[taken]}: {place} cannot be listened on, address already in use"
    assert (ended.status, ended.output) == (2, "")
    assert ended.errors == f"gatewright: {said}; stop what is there, or set another there\n"


def test_all_ports_that_something_has_are_named_at_once(
    newcomer: Operator, sockets: dict[str, socket.socket]
) -> None:
    """Beside another demo one was named, and after that was changed the next."""
    _configured(newcomer.folder, sockets)
    ended = newcomer.starts("demo", "--folder", newcomer.folder)

    assert ended.status == 2
    assert len(ended.errors.splitlines()) == 1
    for port, each in sockets.items():
        assert f"{PORTS[port]}: 127.0.0.1:{each.getsockname()[1]} cannot" in ended.errors


def test_a_configuration_without_the_engine_is_no_demo(newcomer: Operator) -> None:
    newcomer.config_file.write_text("")
    ended = newcomer.starts("demo", "--folder", newcomer.folder)

    said = f"{newcomer.config_file}: the demo needs providers.engine.base_url with a port"
    assert (ended.status, ended.errors) == (2, f"gatewright: {said}\n")


def test_a_part_that_does_not_start_ends_the_demo_and_is_named(
    newcomer: Operator, sockets: dict[str, socket.socket]
) -> None:
    _configured(newcomer.folder, sockets)
    for each in sockets.values():
        each.close()
    (newcomer.folder / "var").mkdir(mode=0o700)
    (newcomer.folder / "var" / "audit").write_text("no folder")
    ended = newcomer.starts("demo", "--folder", newcomer.folder)

    assert (ended.status, ended.output) == (2, "")
    last = ended.errors.splitlines()[-1]
    assert last == "gatewright: the data plane ended; its last lines above say why"
