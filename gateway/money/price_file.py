"""The catalogue in force: the enterprise's own prices first, then the shipped ones."""

import asyncio
from pathlib import Path

from msgspec import Struct

from gateway.configuration.settings import Settings
from gateway.configuration.texts import TEXT_ENCODING
from gateway.errors import ConfigurationInvalid
from gateway.money.catalogue import Catalogue, load_catalogue, shipped_catalogue


PRICE_FILE_BYTES_MAX = 4 * 1024 * 1024


class PriceText(Struct, frozen=True):
    """The enterprise's own prices as text, and their source; empty if there are none."""

    text: bytes
    source: str
    number: int = 0
    """The number of the file in the database; 0 if the configuration names it."""

    @property
    def catalogue(self) -> Catalogue:
        """Raises ConfigurationInvalid with the file, the key and the reason."""
        return catalogue_of(self.text, self.source)


async def configured_prices(settings: Settings) -> PriceText:
    """The prices that the configuration names, read off the loop; raises ConfigurationInvalid."""
    text = await asyncio.to_thread(read_price_file, settings)
    return PriceText(text, _source(settings))


def prices_of(settings: Settings) -> PriceText:
    """The same at start-up, before there is a loop; raises ConfigurationInvalid."""
    return PriceText(read_price_file(settings), _source(settings))


def _source(settings: Settings) -> str:
    """The file's full path, for messages: an operator may type the command anywhere."""
    name = settings.prices.file
    return str(settings.path(name)) if name else ""


def read_price_file(settings: Settings) -> bytes:
    """The text of `prices.file`; empty if none is configured.

    Raises:
        ConfigurationInvalid: it cannot be read.
    """
    name = _source(settings)
    if not name:
        return b""
    try:
        with Path(name).open("rb") as file:
            text = file.read(PRICE_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise ConfigurationInvalid(name, "", reason) from error
    if len(text) > PRICE_FILE_BYTES_MAX:
        raise ConfigurationInvalid(name, "", f"is longer than {PRICE_FILE_BYTES_MAX} bytes")
    return text


def catalogue_of(price_text: bytes, source: str) -> Catalogue:
    """The shipped catalogue, in which entries of the price file take precedence.

    Raises:
        ConfigurationInvalid: with the file, the key and the reason.
    """
    shipped = shipped_catalogue()
    if not source:
        return shipped
    try:
        text = price_text.decode(TEXT_ENCODING)
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(source, "", "is not UTF-8 text") from error
    return Catalogue({**shipped.models, **load_catalogue(text, source).models})
