"""The catalogue in force: what ships with the gateway, and the enterprise's prices before it."""

from gateway.catalogue import Catalogue, load_catalogue, shipped_catalogue
from gateway.errors import ConfigurationInvalid
from gateway.settings import Settings


PRICE_FILE_BYTES_MAX = 4 * 1024 * 1024


def catalogue_in_force(settings: Settings) -> Catalogue:
    """The catalogue of a configuration.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    return catalogue_of(read_price_file(settings), settings.prices.file)


def read_price_file(settings: Settings) -> bytes:
    """The text of `prices.file`; empty where none is configured.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    name = settings.prices.file
    if not name:
        return b""
    try:
        with settings.path(name).open("rb") as file:
            text = file.read(PRICE_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise ConfigurationInvalid(name, "", reason) from error
    if len(text) > PRICE_FILE_BYTES_MAX:
        raise ConfigurationInvalid(name, "", f"is longer than {PRICE_FILE_BYTES_MAX} bytes")
    return text


def catalogue_of(price_text: bytes, source: str) -> Catalogue:
    """What ships with the gateway; entries of the price file stand in front of it.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    shipped = shipped_catalogue()
    if not source:
        return shipped
    try:
        text = price_text.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(source, "", "is not UTF-8 text") from error
    return Catalogue({**shipped.models, **load_catalogue(text, source).models})
