"""The members of a pool: the load and speed of each, and whether it may get more.

A member's load is what we sent it and have not seen end: counted when it is chosen and given back
when the answer ends, however it ends. Scraped metrics are seconds old; they only ever add to it.
"""

from msgspec import Struct


class PoolRules(Struct, frozen=True):
    """How a pool shares its work."""

    bytes_per_token: float = 4.0
    prefill_tokens_per_s: float = 8_000.0
    """Assumed until a member has been measured."""
    learnt_from_tokens: float = 512.0
    """A shorter prompt takes less time to read than everything else before its first token."""
    decode_weight: float = 0.25
    """How much a token that is being generated for others delays a new prompt."""
    decode_work: float = 7.0
    """How many prompt tokens' worth of device time a generated token takes.

    A step of an 8 B model with 32 sequences takes 4.6 ms on one H200, a prompt token 0.02 ms.
    """
    home_credit: float = 0.3
    """Share of a prompt that a prefix's home member is assumed to hold if nothing is known."""
    bound: float = 1.25
    """A member gets no more calls while it has this many times the mean under way."""
    slack_calls: float = 4.0
    """Allowed beyond the bound: with a handful of calls under way the mean says little."""
    work_kept_s: float = 120.0
    """How long work that was given to a member counts."""
    excess_cost: float = 0.1
    """Cost of a token of work beyond the members' mean, in tokens to wait for.

    Being busier than the others outweighs a short common prefix, but not a long one.
    """
    displacement: float = 3.0
    """Extra cost of a token that has to be read.

    It takes the place of a cached one, which may have to be read again later.
    """
    shard_share: float = 0.5
    """Share of the members, at least two, that a tenant may use while they are healthy."""
    slow_start_s: float = 30.0
    slow_after_s: float = 120.0
    slow_ratio: float = 1.2
    """A member slower than its peers by this factor for that long gets a weight by its speed."""
    quarantine_s: float = 600.0
    long_prompt_tokens: int = 16_384
    """Prompts from this length on go to the members for long contexts, if there are any."""
    ewma: float = 0.2
    foreign_prompt_tokens: float = 1_000.0
    foreign_output_tokens: float = 256.0
    """Assumed for requests that others sent to a member."""
    figures_every_s: float = 2.0


class Load:
    """The load that one call puts on a member while it lasts."""

    __slots__ = (
        "ahead_tokens",
        "member",
        "output_tokens",
        "prefill_tokens",
        "prompt_tokens",
        "started_s",
    )

    def __init__(
        self,
        member: "Member",
        prompt_tokens: float,
        prefill_tokens: float,
        output_tokens: float,
        started_s: float,
    ) -> None:
        self.member = member
        self.prompt_tokens = prompt_tokens
        self.prefill_tokens = prefill_tokens
        self.output_tokens = output_tokens
        self.started_s = started_s
        self.ahead_tokens = 0.0
        """Tokens to process before its first token, including its own, as of when it was chosen."""


class Member:
    """One replica."""

    def __init__(self, name: str, rules: PoolRules, *, long_context: bool = False) -> None:
        self.name = name
        self.long_context = long_context
        self.rules = rules
        self.calls = 0
        self.prefill_tokens = 0.0
        self.decode_tokens = 0.0
        self.backlog_tokens = 0.0
        """Both of them, as tokens that a new prompt waits for."""
        self.prefill_per_s = rules.prefill_tokens_per_s
        self.is_up = True
        self.is_draining = False
        self.up_since_s = float("-inf")
        self.work_tokens = 0.0
        """Recent work, decayed: tokens to read, and tokens to generate by their weight."""
        self.foreign_tokens = 0.0
        """Work from others than this worker, according to the member's own recent figures."""
        self.cache_use = 0.0
        self.weight = 1.0
        self.slow_since_s: float | None = None
        self.model_digest = ""

    def ready_share(self, now_s: float) -> float:
        """From 0.1 to 1 after it came back: its cache is empty and its first steps are slow."""
        age_s = now_s - self.up_since_s
        if age_s >= self.rules.slow_start_s:
            return 1.0
        return max(0.1, age_s / self.rules.slow_start_s)

    def begin(self, load: Load) -> None:
        self.calls += 1
        self.prefill_tokens += load.prefill_tokens
        self.work_tokens += load.prefill_tokens + self.rules.decode_work * load.output_tokens
        load.ahead_tokens = self.prefill_tokens + self.rules.decode_weight * self.decode_tokens
        self.decode_tokens += load.output_tokens
        self._weigh()

    def answered(self, load: Load, now_s: float) -> None:
        """The first token came: the prompt has been read, which shows how fast the member reads.

        A mostly cached prompt does not show that: it took as long as a connection and a step do.
        """
        was_read = load.prefill_tokens >= max(self.rules.learnt_from_tokens, load.prompt_tokens / 2)
        self.prefill_tokens = max(self.prefill_tokens - load.prefill_tokens, 0.0)
        load.prefill_tokens = 0.0
        self._weigh()
        took_s = now_s - load.started_s
        if was_read and took_s > 0:
            rate = load.ahead_tokens / took_s
            self.prefill_per_s += self.rules.ewma * (rate - self.prefill_per_s)

    def end(self, load: Load) -> None:
        self.calls = max(self.calls - 1, 0)
        self.prefill_tokens = max(self.prefill_tokens - load.prefill_tokens, 0.0)
        self.decode_tokens = max(self.decode_tokens - load.output_tokens, 0.0)
        load.prefill_tokens = load.output_tokens = 0.0
        if not self.calls:
            self.prefill_tokens = self.decode_tokens = 0.0  # Removes rounding errors.
        self._weigh()

    def _weigh(self) -> None:
        own = self.prefill_tokens + self.rules.decode_weight * self.decode_tokens
        self.backlog_tokens = own + self.foreign_tokens

    def heard(self, waiting: float, running: float, cache_use: float) -> None:
        """The member's own figures: whatever exceeds what we sent there is from others."""
        foreign = max(waiting + running - self.calls, 0.0)
        queued = min(foreign, waiting)
        rules = self.rules
        each = rules.decode_weight * rules.foreign_output_tokens
        self.foreign_tokens = queued * rules.foreign_prompt_tokens + foreign * each
        self.cache_use = cache_use
        self._weigh()

    def down(self) -> None:
        self.is_up = False

    def up(self, now_s: float) -> None:
        if not self.is_up:
            self.is_up, self.up_since_s = True, now_s
