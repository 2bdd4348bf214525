"""Runs the classifiers over a request within a deadline; slow work leaves the event loop.

An unknown, failed or late inspection counts as the most sensitive class: it fails closed. Only
labels and counts are known here; the values that were found stay inside the classifiers.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import msgspec

from classifiers.calibration.table import (
    NOTHING_PROMISED,
    CalibrationTable,
    Scope,
    load_table,
)
from classifiers.complexity.ability import Ability, load_ability
from classifiers.complexity.cascade import judge as judge_answer
from classifiers.complexity.model import Complexity, ComplexityModel
from classifiers.complexity.model import load as load_complexity
from classifiers.extraction import extract, extract_parts
from classifiers.injection.untrusted import untrusted_texts
from classifiers.inspection import MAX_LENGTH, Contents, in_all, inspect_extraction
from classifiers.parts import Part, parts_of
from classifiers.pii.labels import SOFT, DataClass
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner
from classifiers.pii.scanner import load as load_scanner
from gateway.clock import SECOND_US, Clock
from gateway.configuration.sections import InspectionSettings
from gateway.configuration.settings import Settings
from gateway.errors import ClosedByPolicy, ConfigurationInvalid
from gateway.inspection.text_reader import Reading, TextReader, TooMuchUnread, injection_model
from gateway.pacing.waiting_line import WaitingLine
from gateway.telemetry import Event, logger, raised_at
from gateway.types import ChatRequest, Inspection, Tier
from gateway.veiling.forms import whole_place
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.redaction import pseudonyms, replaced, still_said
from policies.document import OutputScanning
from policies.facts import DATA_CLASSES


MOST_SENSITIVE = "S4"
TIERS: Mapping[str, Tier] = {"light": "cheap", "standard": "mid", "demanding": "frontier"}
INJECTION_FACTS = frozenset({"injection", "injection_suspected"})
LOOKED_UP_BYTES_MAX = 128 * 1024
"""Shorter bodies are parsed on the loop: usually all but their last message is known."""
LONG_BYTES_MAX = 1024 * 1024
"""Longer bodies take some seconds; shorter ones do not wait for them."""

BYTES_PER_MIB = 1 << 20
_UNREADABLE = (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a file that is missing, not JSON, or nested too deeply."""


def load_calibration(file: Path | None) -> CalibrationTable:
    """The calibration table of a configuration; without one nothing is promised.

    Raises:
        ConfigurationInvalid
    """
    if file is None:
        return NOTHING_PROMISED
    try:
        return load_table(file.read_bytes())
    except _UNREADABLE as error:
        key = "inspection.calibration_file"
        raise ConfigurationInvalid(str(file), key, f"not a calibration table: {error}") from error


def load_model_ability(file: Path | None, scorer: ComplexityModel) -> Ability | None:
    """The abilities of the cheap model of a configuration.

    Raises:
        ConfigurationInvalid
    """
    if file is None:
        return None
    try:
        ability = load_ability(file.read_bytes())
    except _UNREADABLE as error:
        key = "inspection.ability_file"
        raise ConfigurationInvalid(str(file), key, f"not a model's abilities: {error}") from error
    if ability.classifier_version != scorer.version:
        reason = f"made with {ability.classifier_version}, and this is {scorer.version}"
        raise ConfigurationInvalid(str(file), "inspection.ability_file", reason)
    return ability


def make_inspector(settings: Settings, clock: Clock) -> "Inspector":
    """The inspector of a configuration, both for serving and for explaining.

    Raises:
        ConfigurationInvalid
    """
    table, abilities = settings.inspection.calibration_file, settings.inspection.ability_file
    scorer = load_complexity()
    calibration = load_calibration(settings.path(table) if table else None)
    ability = load_model_ability(settings.path(abilities) if abilities else None, scorer)
    return Inspector(settings.inspection, scorer, clock, load_scanner(), calibration, ability)


class Inspector:
    """Request → Inspection; never raises anything but a cancellation."""

    def __init__(
        self,
        settings: InspectionSettings,
        scorer: ComplexityModel,
        clock: Clock,
        scanner: Scanner = PATTERNS_ONLY,
        calibration: CalibrationTable = NOTHING_PROMISED,
        ability: Ability | None = None,
    ) -> None:
        self._tolerated = frozenset(settings.tolerated_opaque)
        self._queue_s = settings.queue_s
        self._deadline_s = settings.deadline_s
        self._deadline_s_per_byte = settings.deadline_s_per_mib / BYTES_PER_MIB
        self._inline_bytes_max = settings.inline_bytes_max
        self._masked_from = DataClass[settings.output_masked_from]
        self._scorer = scorer
        self._scanner = scanner
        self._calibration = self._table = calibration
        self._reader = TextReader(scanner, scorer, ability, settings.verdicts_kept, clock)
        self._reads_injection = settings.injection
        self._clock = clock
        self._line = WaitingLine("inspection")
        self._long_line = WaitingLine("inspection-long")
        self._longest_line = WaitingLine("inspection-longest")
        self._threads = self._line.threads
        self._log = logger()

    async def inspect(
        self,
        request: ChatRequest,
        organisation: str,
        facts_read: Collection[str] = (),
        asker: str = "",
    ) -> Inspection:
        """Look at every string of the request; `facts_read` are the facts that policy looks at.

        A conversation repeats its history with every turn, and an agent its task with every tool
        result: what this organisation has sent before is known by its digest and not read again.
        """
        started_s = self._clock.monotonic_s()
        classify = partial(self._classify, request, facts_read, started_s)
        length_bytes = len(request.raw)
        try:
            if length_bytes <= self._inline_bytes_max:
                return classify(Reading(organisation))
            if self._inline_bytes_max and length_bytes <= LOOKED_UP_BYTES_MAX:
                with suppress(TooMuchUnread):
                    return classify(Reading(organisation, unread_max=self._inline_bytes_max))
            return await self._in_turn(classify, organisation, asker, length_bytes)
        except TimeoutError:
            return self._unknown("deadline", started_s)
        except Exception as error:  # noqa: BLE001 - a broken classifier must close, not open
            self._say_failed(request, error)
            return self._unknown("failed", started_s)

    async def _in_turn(
        self,
        classify: Callable[[Reading], Inspection],
        organisation: str,
        asker: str,
        length_bytes: int,
    ) -> Inspection:
        """Look at a body in a thread, when its turn comes.

        One thread reads one body after the other, so that a text which many send at once is read
        once and then known. The time that a body may take counts from its own turn: waiting for
        others is no fault of its text. Long bodies have lines of their own.

        Raises:
            TimeoutError
        """
        limit_s = self._deadline_s + length_bytes * self._deadline_s_per_byte

        def take_turn() -> Inspection:
            return classify(Reading(organisation, self._clock.monotonic_s() + limit_s))

        async with asyncio.timeout(self._queue_s + limit_s):
            return await self._line_for(length_bytes).do(asker, take_turn)

    def _line_for(self, length_bytes: int) -> WaitingLine:
        if length_bytes <= LOOKED_UP_BYTES_MAX:
            return self._line
        return self._long_line if length_bytes <= LONG_BYTES_MAX else self._longest_line

    async def locate(self, request: ChatRequest, organisation: str) -> tuple[tuple[str, str], ...]:
        """Label and text of every finding: only for `veil`, never to be kept.

        Raises:
            ClosedByPolicy: not everything could be read, so not everything would be found.
        """
        if len(request.raw) <= self._inline_bytes_max:
            return self._located(request, organisation)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._located, request, organisation)

    def _located(self, request: ChatRequest, organisation: str) -> tuple[tuple[str, str], ...]:
        return self._found(request.tree, organisation)

    async def blackened(self, request: ChatRequest, organisation: str, answer: bytes) -> bytes:
        """An answer's JSON with the findings of it and its request blackened, for the log.

        Empty if that cannot be done for certain: then nothing of it may be kept.
        """
        if request.purpose != "answer":
            return b""
        try:
            if len(request.raw) + len(answer) <= self._inline_bytes_max:
                return self._blackened(request, organisation, answer)
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._blackened, request, organisation, answer
            )
        except Exception as error:  # noqa: BLE001 - a broken classifier must close, not open
            self._say_failed(request, error)
            return b""

    def _say_failed(self, request: ChatRequest, error: Exception) -> None:
        self._log.error(
            Event.INSPECTION_FAILED,
            request_id=request.request_id,
            error_class=type(error).__name__,
            where=raised_at(error),
        )

    def _blackened(self, request: ChatRequest, organisation: str, answer: bytes) -> bytes:
        try:
            tree = msgspec.json.decode(answer)
            found = (*self._located(request, organisation), *self._found(tree, organisation))
        except (ClosedByPolicy, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return b""
        names = pseudonyms(b"", found, (), one_way=True)
        black = replaced(tree, names)
        return b"" if still_said(black, names) else msgspec.json.encode(black)

    def _found(self, tree: object, organisation: str) -> tuple[tuple[str, str], ...]:
        extraction = extract(tree)
        result = inspect_extraction(
            extraction, self._tolerated, partial(self._reader.verdict, Reading(organisation))
        )
        if not result.complete:
            raise ClosedByPolicy("What cannot be read cannot be given pseudonyms.")
        if result.is_torn:
            raise ClosedByPolicy(
                "A value that stands in several parts cannot be given a pseudonym."
            )
        found: list[tuple[str, str]] = []
        for f in result.findings:
            if f.label not in SOFT:
                text = extraction.segments[f.segment].text
                start, end = whole_place(text, f.start, f.end)
                found.append((f.label, text[start:end]))
        return tuple(found)

    def output_scan(
        self, request: ChatRequest, scanning: OutputScanning | None
    ) -> OutputScan | None:
        """The scan of the answer that policy asks for; None if it asks for none."""
        if scanning is None or request.purpose != "answer":
            return None
        masked_from = self._masked_from if scanning == "mask" else None
        return OutputScan(
            self._scanner.scan,
            PATTERNS_ONLY.scan,
            masked_from,
            request.tree,
            self._clock.monotonic_s,
        )

    async def doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        """The probability, 0 to 1, that a cheap answer is not good enough (`cascading.Judge`)."""
        if len(request.raw) + len(answer) <= self._inline_bytes_max:
            return self._doubt(request, organisation, answer, calls_tools=calls_tools)
        ask = partial(self._doubt, request, organisation, answer, calls_tools=calls_tools)
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    def _doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        prompt = extract(request.tree).newest_user_text()
        complexity = self._reader.complexity(Reading(organisation), prompt)
        if calls_tools:
            # What a call says is not for the gate: only the prompt speaks.
            return 1.0 - complexity.weak_suffices
        return judge_answer(self._scorer.gate, complexity, prompt, [("", answer)], {}).score

    def promised(self, organisation: str, route: str) -> str:
        """A digest of what the calibration table promises for a route; empty if that is nothing."""
        found = self._table.promised(Scope(organisation, route))
        if found is None:
            return ""
        return hashlib.blake2b(msgspec.json.encode(found), digest_size=16).hexdigest()

    def withdraw(self, routes: Collection[tuple[str, str]]) -> None:
        """Promise nothing for these routes of organisations; promises for others stand."""
        scopes = {Scope(*route) for route in routes}
        self._calibration = self._table.without(scopes) if scopes else self._table

    def warm(self) -> None:
        """Build the tables that the first requests would wait for, in a thread.

        A request that comes earlier waits for the part that it needs, and is read all the same.
        """
        Thread(target=self._scanner.warm, name="inspection-warm", daemon=True).start()

    def close(self) -> None:
        for line in (self._line, self._long_line, self._longest_line):
            line.threads.shutdown(wait=False, cancel_futures=True)

    def _classify(
        self,
        request: ChatRequest,
        facts_read: Collection[str],
        started_s: float,
        reading: Reading,
    ) -> Inspection:
        parts = parts_of(request.tree)
        result, complexity = self._look(parts, reading, len(request.raw))
        tier, promise = self._tier(complexity, Scope(reading.organisation, request.model))
        injection = self._worst_injection(request, reading, facts_read)
        return Inspection(
            data_class=DATA_CLASSES[result.data_class],
            findings=result.counts,
            complete=result.complete,
            incomplete_reasons=result.reasons,
            complexity=complexity.score,
            complexity_tier=tier,
            classifier_version=complexity.model_version,
            duration_us=self._elapsed_us(started_s),
            complexity_parts=complexity.parts,
            calibration=promise,
            injection=round(injection, 4),
            injection_suspected=injection > 0.0 and injection >= injection_model().threshold,
        )

    def _look(
        self, parts: Sequence[Part], reading: Reading, length_bytes: int
    ) -> tuple[Contents, Complexity]:
        """By what is known of its parts; as a whole if that is impossible, or it is too long."""
        if length_bytes <= MAX_LENGTH:
            try:
                names = self._reader.names(parts)
                seen = self._reader.seen(reading, parts, names)
                across = self._reader.across(reading, parts, names, seen)
                contents = in_all(seen, self._tolerated, across)
                if contents is not None:
                    return contents, self._reader.question(reading, parts, names)
            except UnicodeEncodeError:
                pass
        whole = extract_parts(parts)
        judged = partial(self._reader.verdict, reading)
        contents = inspect_extraction(whole, self._tolerated, judged)
        return contents, self._reader.complexity(reading, whole.newest_user_text())

    def _worst_injection(
        self, request: ChatRequest, reading: Reading, facts_read: Collection[str]
    ) -> float:
        """Score of the worst untrusted text, if a policy or a setting asks for it. Advice only."""
        if not self._reads_injection and INJECTION_FACTS.isdisjoint(facts_read):
            return 0.0
        texts = untrusted_texts(request.tree)
        return max((self._reader.injection(reading, text) for text in texts), default=0.0)

    def _tier(self, complexity: Complexity, scope: Scope) -> tuple[Tier, str]:
        """The smallest tier that is probably enough; by a guarantee if one was asked for."""
        verdict = self._calibration.verdict(
            scope,
            complexity.weak_suffices,
            complexity.model_version,
            familiar=complexity.familiar,
        )
        if verdict is None:
            return TIERS.get(complexity.tier, "frontier"), ""
        return ("cheap" if verdict.cheap else "frontier"), verdict.reason

    def _unknown(self, reason: str, started_s: float) -> Inspection:
        return Inspection(
            data_class=MOST_SENSITIVE,
            findings={},
            complete=False,
            incomplete_reasons=(reason,),
            complexity=1.0,
            complexity_tier="frontier",
            classifier_version="",
            duration_us=self._elapsed_us(started_s),
        )

    def _elapsed_us(self, started_s: float) -> int:
        return round((self._clock.monotonic_s() - started_s) * SECOND_US)
