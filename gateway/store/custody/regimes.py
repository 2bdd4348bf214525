"""The sets of rules that an organisation says it is bound by: each choice of its people is kept.

The last choice holds; before the first one, the configuration does. Choices are never rewritten: an
incident keeps the rules that held when it was opened.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import BigInteger, Column, Integer, String, Table, Text, func, insert, select
from sqlalchemy.exc import IntegrityError

from gateway.clock import Clock
from gateway.configuration.sections import ObligationSettings
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.obligations import REGIMES
from gateway.store.engine import Database
from gateway.store.schema.tables import metadata


REASON_CHARS_MAX: Final = 500

regime_choices = Table(
    "regime_choices",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("regimes", String(200), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("utc_us", BigInteger, nullable=False),
)
"""`regimes` are separated by spaces; an organisation's highest place is in force."""


class RegimeChoice(Struct, frozen=True):
    """A choice of the rules that apply."""

    organisation: str
    place: int
    """1 for the first choice; 0 if nobody chose, and the configuration applies."""
    regimes: str
    actor: str = ""
    reason: str = ""
    utc_us: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.regimes.split())


class RegimeTable:
    """Choices of one database."""

    def __init__(self, database: Database, settings: ObligationSettings, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    async def standing(self, organisation: str) -> RegimeChoice:
        """What is in force: the last choice, or the configured rules. Raises NotReady."""
        for choice in await self.choices(organisation, 1):
            return choice
        return RegimeChoice(organisation, 0, " ".join(self._settings.of(organisation)))

    async def choices(self, organisation: str, count_max: int) -> list[RegimeChoice]:
        """The newest choices, newest first."""
        query = (
            select(regime_choices)
            .where(regime_choices.c.organisation == organisation)
            .order_by(regime_choices.c.place.desc())
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [RegimeChoice(**row) for row in rows]

    async def choose(self, choice: RegimeChoice) -> None:
        """Put these rules in force from now on; `place` is one more than that of what was seen.

        Raises:
            ChangedMeanwhile: somebody else chose since.
        """
        last = select(func.max(regime_choices.c.place)).where(
            regime_choices.c.organisation == choice.organisation
        )
        try:
            async with self._database.writing() as connection:
                if int((await connection.execute(last)).scalar_one() or 0) != choice.place - 1:
                    raise ChangedMeanwhile("somebody else chose meanwhile", parameter="seen")
                row = {name: getattr(choice, name) for name in RegimeChoice.__struct_fields__}
                await connection.execute(insert(regime_choices), row)
        except IntegrityError:
            raise ChangedMeanwhile("somebody else chose meanwhile", parameter="seen") from None


def checked(regimes: Collection[str], reason: str) -> str:
    """Names of rules in one text, each once.

    Raises:
        RequestInvalid: a name is unknown, or no reason is given.
    """
    if not set(regimes) <= set(REGIMES):
        raise RequestInvalid(f"the rules are some of {', '.join(REGIMES)}", parameter="regimes")
    if not 1 <= len(reason) <= REASON_CHARS_MAX:
        limit = f"say why, in at most {REASON_CHARS_MAX} characters"
        raise RequestInvalid(limit, parameter="reason")
    return " ".join(name for name in REGIMES if name in regimes)
