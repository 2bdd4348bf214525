"""Runs the classifiers over a request, within a deadline; the one place where CPU leaves the loop.

Unknown, failed or late inspection counts as the most sensitive class: fail closed. It knows labels
and counts; the values that were found stay inside the classifiers.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import inf
from pathlib import Path
from threading import Thread

import msgspec

from classifiers.calibration.table import (
    NOTHING_PROMISED,
    CalibrationTable,
    Scope,
    load_table,
)
from classifiers.complexity.ability import Ability, load_ability, with_ability
from classifiers.complexity.cascade import judge as judge_answer
from classifiers.complexity.model import Complexity, ComplexityModel
from classifiers.extraction import extract
from classifiers.injection.model import InjectionModel
from classifiers.injection.model import load as load_injection
from classifiers.injection.untrusted import untrusted_texts
from classifiers.inspection import inspect_extraction
from classifiers.pii.labels import SOFT, DataClass
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner
from classifiers.units import Unit
from classifiers.verdicts import Verdict, digest, judge
from gateway.clock import Clock
from gateway.configuration.sections import InspectionSettings
from gateway.errors import ClosedByPolicy, ConfigurationInvalid
from gateway.remembered import Remembered
from gateway.telemetry import Event, logger, raised_at
from gateway.types import ChatRequest, Inspection, Tier
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.redaction import pseudonyms, replaced, still_said
from policies.document import OutputScanning
from policies.facts import DATA_CLASSES


MOST_SENSITIVE = "S4"
TIERS: Mapping[str, Tier] = {"light": "cheap", "standard": "mid", "demanding": "frontier"}
INJECTION_FACTS = frozenset({"injection", "injection_suspected"})
US_PER_S = 1e6
BYTES_PER_MIB = 1 << 20


def load_calibration(file: Path | None) -> CalibrationTable:
    """The calibration table of a configuration; without one nothing is promised.

    Raises:
        ConfigurationInvalid
    """
    if file is None:
        return NOTHING_PROMISED
    try:
        return load_table(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationInvalid(str(file), "", f"not a calibration table: {error}") from error


@cache
def injection_model() -> InjectionModel:
    """Read when somebody first asks for it: most installations do not."""
    return load_injection()


def _digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def load_model_ability(file: Path | None, scorer: ComplexityModel) -> Ability | None:
    """The abilities of the cheap model of a configuration.

    Raises:
        ConfigurationInvalid
    """
    if file is None:
        return None
    try:
        ability = load_ability(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationInvalid(str(file), "", f"not a model's abilities: {error}") from error
    if ability.classifier_version != scorer.version:
        reason = f"made with {ability.classifier_version}, and this is {scorer.version}"
        raise ConfigurationInvalid(str(file), "", reason)
    return ability


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
        self._ability = ability
        self._tolerated = frozenset(settings.tolerated_opaque)
        self._deadline_s = settings.deadline_s
        self._deadline_s_per_byte = settings.deadline_s_per_mib / BYTES_PER_MIB
        self._inline_bytes_max = settings.inline_bytes_max
        self._masked_from = DataClass[settings.output_masked_from]
        self._scorer = scorer
        self._scanner = scanner
        self._calibration = self._table = calibration
        self._verdicts: Remembered[Verdict] = Remembered(settings.verdicts_kept)
        self._reads_injection = settings.injection
        self._injections: Remembered[float] = Remembered(settings.verdicts_kept)
        self._scores: Remembered[Complexity] = Remembered(settings.verdicts_kept)
        self._clock = clock
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inspection")
        self._log = logger()

    async def inspect(
        self, request: ChatRequest, organisation: str, facts_read: Collection[str] = ()
    ) -> Inspection:
        """Look at every string of the request; `facts_read` are those that policy looks at.

        A conversation repeats its history with every turn, and an agent its task with every tool
        result: what this organisation has sent before is known by its digest and not read again.
        """
        started_s = self._clock.monotonic_s()
        try:
            if len(request.raw) <= self._inline_bytes_max:
                inspection = self._classify(request, organisation, started_s)
                return self._with_injection(inspection, request, organisation, facts_read)
            loop = asyncio.get_running_loop()
            limit_s = self._deadline_s + len(request.raw) * self._deadline_s_per_byte
            async with asyncio.timeout(limit_s):
                due_s = started_s + limit_s
                inspection = await loop.run_in_executor(
                    self._threads, self._classify, request, organisation, started_s, due_s
                )
                return await loop.run_in_executor(
                    self._threads,
                    self._with_injection,
                    inspection,
                    request,
                    organisation,
                    facts_read,
                )
        except TimeoutError:
            return self._unknown("deadline", started_s)
        except Exception as error:  # noqa: BLE001 - a broken classifier must close, not open
            self._log.error(
                Event.INSPECTION_FAILED,
                request_id=request.request_id,
                error_class=type(error).__name__,
                where=raised_at(error),
            )
            return self._unknown("failed", started_s)

    async def locate(self, request: ChatRequest, organisation: str) -> tuple[tuple[str, str], ...]:
        """Label and text of every finding: for `veil` alone, and for nobody to keep.

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
        """An answer's JSON with every finding in it and in its request blackened, for the log.

        Empty where that cannot be done for certain: then nothing of it may be kept.
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
            self._log.error(
                Event.INSPECTION_FAILED,
                request_id=request.request_id,
                error_class=type(error).__name__,
                where=raised_at(error),
            )
            return b""

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
            extraction, self._tolerated, partial(self._verdict, organisation, inf)
        )
        if not result.complete:
            raise ClosedByPolicy("What cannot be read cannot be given pseudonyms.")
        return tuple(
            (f.label, extraction.segments[f.segment].text[f.start : f.end])
            for f in result.findings
            if f.label not in SOFT
        )

    def output_scan(
        self, request: ChatRequest, scanning: OutputScanning | None
    ) -> OutputScan | None:
        """What reads the answer, as policy says; None where it says nothing."""
        if scanning is None or request.purpose != "answer":
            return None
        masked_from = self._masked_from if scanning == "mask" else None
        return OutputScan(self._scanner.scan, PATTERNS_ONLY.scan, masked_from)

    async def doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        """How likely it is, 0 to 1, that a cheap model's answer will not do (`cascading.Judge`)."""
        if len(request.raw) + len(answer) <= self._inline_bytes_max:
            return self._doubt(request, organisation, answer, calls_tools=calls_tools)
        ask = partial(self._doubt, request, organisation, answer, calls_tools=calls_tools)
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    def _doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        prompt = extract(request.tree).newest_user_text()
        complexity = self._score(prompt, organisation)
        if calls_tools:
            # What a call says is not for the gate: only the prompt speaks.
            return 1.0 - complexity.weak_suffices
        return judge_answer(self._scorer.gate, complexity, prompt, [("", answer)], {}).score

    def promised(self, organisation: str, route: str) -> str:
        """Names what the table of the settings promises of a route; empty where it is nothing."""
        found = self._table.promised(Scope(organisation, route))
        return "" if found is None else _digest_of(msgspec.json.encode(found).decode()).hex()

    def withdraw(self, routes: Collection[tuple[str, str]]) -> None:
        """Promise nothing of these routes of organisations, and all that is promised of others."""
        scopes = {Scope(*route) for route in routes}
        self._calibration = self._table.without(scopes) if scopes else self._table

    def warm(self) -> None:
        """Build tables that the first requests would wait for, beside the loop.

        Whoever comes before it is done waits for the part that it needs, and is read all the same.
        """
        Thread(target=self._scanner.warm, name="inspection-warm", daemon=True).start()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _classify(
        self, request: ChatRequest, organisation: str, started_s: float, due_s: float = inf
    ) -> Inspection:
        extraction = extract(request.tree)
        result = inspect_extraction(
            extraction, self._tolerated, partial(self._verdict, organisation, due_s)
        )
        complexity = self._score(extraction.newest_user_text(), organisation)
        tier, promise = self._tier(complexity, Scope(organisation, request.model))
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
        )

    def _with_injection(
        self,
        inspection: Inspection,
        request: ChatRequest,
        organisation: str,
        facts_read: Collection[str],
    ) -> Inspection:
        """The score of the worst untrusted text, where a policy or a setting asks. Advice only."""
        if not self._reads_injection and INJECTION_FACTS.isdisjoint(facts_read):
            return inspection
        worst = max(
            (self._injection_score(text, organisation) for text in untrusted_texts(request.tree)),
            default=0.0,
        )
        return msgspec.structs.replace(
            inspection,
            injection=round(worst, 4),
            injection_suspected=worst >= injection_model().threshold,
        )

    def _injection_score(self, text: str, organisation: str) -> float:
        name = _digest_of(text)
        score = self._injections.get(organisation, name)
        if score is None:
            score = injection_model().score(text)
            self._injections.keep(organisation, name, score)
        return score

    def _tier(self, complexity: Complexity, scope: Scope) -> tuple[Tier, str]:
        """The smallest tier that is probably enough; by a guarantee where one was asked for."""
        verdict = self._calibration.verdict(
            scope,
            complexity.weak_suffices,
            complexity.model_version,
            familiar=complexity.familiar,
        )
        if verdict is None:
            return TIERS.get(complexity.tier, "frontier"), ""
        return ("cheap" if verdict.cheap else "frontier"), verdict.reason

    def _verdict(self, organisation: str, due_s: float, unit: Unit) -> Verdict:
        name = digest(unit)
        verdict = self._verdicts.get(organisation, name)
        if verdict is None:
            verdict = judge(unit, self._scanner, lambda: self._clock.monotonic_s() >= due_s)
            if not verdict.reasons:
                # What could not be finished this time may be finished next time.
                self._verdicts.keep(organisation, name, verdict)
        return verdict

    def _score(self, text: str, organisation: str) -> Complexity:
        name = _digest_of(text)
        score = self._scores.get(organisation, name)
        if score is None:
            score = self._scorer.assess(text)
            if self._ability is not None:
                score = with_ability(score, self._ability)
            self._scores.keep(organisation, name, score)
        return score

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
        return round((self._clock.monotonic_s() - started_s) * US_PER_S)
