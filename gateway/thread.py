"""The kept answer or conversation that a request continues or is added to. Frozen."""

from msgspec import Struct


class Thread(Struct, frozen=True):
    """What a request goes on from, and what is kept of it; only here, and never by an upstream."""

    previous_id: str = ""
    """The kept answer that it continues; empty for none."""
    keeps: bool = False
    """Whether the answer is kept, so that a later request may continue it."""
    answer_id: str = ""
    """The id under which it will be kept."""
    data_class: str = "S0"
    """The most sensitive class that the thread has had; the request's own is never lower."""
    references: tuple[str, ...] = ()
    """Items of kept answers that were named in their place."""
    sources: tuple[str, ...] = ()
    """The answers in which those stand."""
    conversation_id: str = ""
    """The conversation that it goes on with; empty for none."""
    adds: bool = False
    """Whether what is asked and answered is added to that conversation."""
    history: int = 0
    """How many items of the request's input stand in the conversation already."""
    background: bool = False
    """Whether it is answered while its caller is away, and its answer waits here."""
    asked_us: int = 0
    """When it was asked, by the database's clock."""
    is_followed: bool = False
    """Of those, whether its caller hears the answer's events while it is made."""

    @property
    def goes_on(self) -> bool:
        """Whether anything was put in front of what its caller sent, or in its middle."""
        return bool(self.previous_id or self.references or self.conversation_id)
