"""Decisions, explanations and check reports as plain text for a terminal."""

from collections.abc import Iterator

from policies.checking.check import CaseResult, CheckReport
from policies.decision import Decision
from policies.explain import Explanation, RuleExplanation, TargetExplanation
from policies.replay import Impact, Reproduction


def render_explanation(explanation: Explanation) -> str:
    """The decision, then every rule with its values, and every target with what became of it."""
    lines = list(_decision_lines(explanation.decision))
    lines += ["", "rules:", *map(_rule_line, explanation.rules)]
    lines += ["", "targets:"]
    for target in explanation.targets:
        lines.extend(_target_lines(target))
    return "\n".join(lines)


def render_report(report: CheckReport) -> str:
    """What is wrong with a document, and how its test cases went."""
    lines = [f"{report.source_name}: error: {problem}" for problem in report.errors]
    lines += [f"{report.source_name}: warning: {problem}" for problem in report.warnings]
    for result in report.tests:
        lines.append(f"pass  {result.name}" if result.has_passed else _failed(result))
        lines.extend(f"      {failure}" for failure in result.failures)
    if report.document is not None:
        lines.append(f"sha256 {report.document.digest}")
    lines.append("ok" if report.is_ok else "not ok")
    return "\n".join(lines)


def wrongs_of(report: CheckReport) -> list[str]:
    """The reasons why a document cannot be used, a line each: its errors and failed test cases."""
    failed = [each for each in report.tests if not each.has_passed]
    cases = [f"{_failed(each)}: {'; '.join(each.failures)}" for each in failed]
    return [*(f"error: {problem}" for problem in report.errors), *cases]


def _failed(result: CaseResult) -> str:
    return f"FAIL  {result.name}" + (f" ({result.at})" if result.at is not None else "")


def render_impact(impact: Impact, again: Reproduction) -> str:
    """What a draft would have done to recorded traffic, and how well the record reproduces."""
    asked = again.same + len(again.different)
    lines = [
        f"recorded decisions reproduced: {again.same} of {asked}"
        + (f"; {again.unknown_documents} under unknown documents" * bool(again.unknown_documents)),
        *(f"  NOT REPRODUCED: {request_id}" for request_id in again.different[:10]),
        f"requests: {impact.requests}",
        f"rerouted: {impact.rerouted}",
        f"newly in-house: {impact.newly_in_house}",
        f"no longer in-house: {impact.no_longer_in_house}",
        f"newly blocked: {impact.newly_blocked}",
        f"newly permitted: {impact.newly_permitted}",
        (
            f"cost: {impact.cost_before_microusd} → {impact.cost_after_microusd} micro-dollars "
            f"({impact.cost_delta_microusd:+d})"
        ),
    ]
    lines += [f"route: {before} → {after}: {count}" for before, after, count in impact.routes]
    lines += [f"budget overrun: {name} would cost {cost}" for name, cost in impact.tripped]
    for example in impact.examples:
        lines.append(f"example: {example.request_id}: {example.before} → {example.after}")
        lines.append(f"  {example.reason}")
    return "\n".join(lines)


def _decision_lines(decision: Decision) -> Iterator[str]:
    refusal = f" ({decision.refusal})" if decision.refusal is not None else ""
    yield f"{decision.effect}{refusal}: {decision.reason}"
    yield f"document: {decision.document_name} ({decision.document_digest[:12]})"
    yield f"candidates: {', '.join(decision.candidates) or 'none'}"
    yield f"constraints matched: {', '.join(decision.matched_constraints) or 'none'}"
    yield f"preference: {decision.matched_preference or 'none'}"
    if decision.cascade_above_percent is not None:
        yield f"one tier up when it fails more likely than: {decision.cascade_above_percent:g}%"
    if decision.hedge_after_ms is not None:
        yield f"hedged after: {decision.hedge_after_ms} ms"
    for name, value in _obligations(decision):
        yield f"{name}: {value}"
    for exclusion in decision.excluded:
        rule = f" by {exclusion.rule}" if exclusion.rule is not None else ""
        yield f"excluded: {exclusion.target} ({exclusion.kind}{rule}: {exclusion.reason})"


def _obligations(decision: Decision) -> Iterator[tuple[str, str]]:
    obligations = decision.obligations
    if obligations.output_tokens_cap is not None:
        yield "output tokens at most", str(obligations.output_tokens_cap)
    if obligations.input_tokens_cap is not None:
        yield "input tokens at most", str(obligations.input_tokens_cap)
    yield "cleared jurisdictions", ", ".join(obligations.jurisdictions) or "none"
    if obligations.no_cache:
        yield "response cache", "not to be used"
    for name, is_set in (
        ("pseudonymise", obligations.pseudonymise),
        ("redact", obligations.redact),
    ):
        if is_set:
            yield name, "every finding"
    if obligations.scan_output is not None:
        yield (
            "findings in the answer",
            "counted" + (" and masked" if obligations.scan_output == "mask" else ""),
        )
    if obligations.audit_content is not None:
        yield "content in the audit record", obligations.audit_content


def _rule_line(rule: RuleExplanation) -> str:
    state = "applied" if rule.applied else "matched" if rule.matched else "-"
    values = f"  [{'; '.join(map(str, rule.values))}]" if rule.values else ""
    return f"  {state:<8} {rule.kind} {rule.name}: {rule.when or 'always'}{values}"


def _target_lines(target: TargetExplanation) -> Iterator[str]:
    if target.place is not None:
        yield f"  {target.place + 1:<8} {target.name}"
    elif not target.exclusions:
        yield f"  {'-':<8} {target.name}: permitted, but not what was asked for"
    for exclusion in target.exclusions:
        rule = f" by {exclusion.rule}" if exclusion.rule is not None else ""
        yield f"  {'-':<8} {target.name}: {exclusion.kind}{rule}: {exclusion.reason}"
