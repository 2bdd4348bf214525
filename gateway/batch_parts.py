"""The parts of files and batches, put together: their addresses, and what is done for them."""

from litestar.handlers import HTTPRouteHandler

from gateway.api.files import file_routes
from gateway.api.front import Front
from gateway.api.uploads import Uploads
from gateway.clock import Clock
from gateway.credentials import master_key
from gateway.settings import Settings
from gateway.store.engine import Database
from gateway.store.kept_files import FileStore
from gateway.telemetry import Event
from gateway.upkeep import Duty


EXPIRY_PERIOD_S = 600.0


class Batches:
    """What a worker has for files and batches."""

    def __init__(self, settings: Settings, database: Database, clock: Clock) -> None:
        self._settings = settings
        self._files = FileStore(database, master_key(settings), clock)
        self._uploads = Uploads(self._files, clock, settings.limits, settings.batches.keep_days)

    def routes(self, front: Front) -> list[HTTPRouteHandler]:
        """None where the settings switch them off."""
        if not self._settings.batches.enabled:
            return []
        return file_routes(front, self._files, self._uploads)

    @property
    def duties(self) -> tuple[Duty, ...]:
        """What is kept is forgotten after its time, also where nothing new is taken in."""
        forget = self._files.forget_expired
        return (Duty("files", EXPIRY_PERIOD_S, forget, Event.UPKEEP_FAILED),)
