"""Cost of one decision: the shipped policy, 20 rules, 200 rules, and a replay of facts.

    python -m benchmarks.decisions

Best of many short rounds: the figure of a quiet moment, which even a busy machine has.
"""

import time
from importlib import resources

from msgspec.structs import replace

from policies.decide import decide
from policies.examples import EXAMPLE_FACTS
from policies.explain import explain
from policies.program import PolicyDocument
from policies.replay import Recorded, impact
from policies.text.loading import load_document


ROUNDS = 60
REPEATS = 300
CONDITIONS = (
    'data_class >= "S3"',
    '"trial-{n}" in labels',
    "input_tokens_estimate > 10{n:04} and stream",
    "findings.EMAIL > {n}",
    'project == "payroll-{n}"',
    "complexity > 0.95{n:04}",
    "hour_utc >= 23",
    'startswith(model_requested, "gpt-{n}")',
    "has_tools and not stream",
    'matches(workspace, "^secret-{n}-.*")',
)
"""No two rules are alike where they could differ."""
EFFECTS = (
    "allow_only = { in_house = true }",
    'forbid = { tiers = ["frontier"] }',
    "cap_output_tokens = 500",
    "no_cache = true",
    'forbid = { jurisdictions = ["elsewhere"] }',
)


def make_document(rules: int) -> PolicyDocument:
    """Three constraints per preference, of every kind."""
    lines = ['name = "bench"', "version = 1"]
    constraints = rules * 3 // 4
    for number in range(constraints):
        when = CONDITIONS[number % len(CONDITIONS)].format(n=number)
        lines += ["[[constraints]]", f'name = "c{number}"', f"when = '{when}'"]
        lines.append(EFFECTS[number % len(EFFECTS)])
    for number in range(rules - constraints):
        lines += ["[[preferences]]", f'name = "p{number}"']
        lines.append(f"when = 'complexity > {0.5 + number * 0.001}'")
        lines.append('order = ["cheap", "mid", "cheapest"]')
    return load_document("\n".join(lines))


def cost_us(document: PolicyDocument) -> float:
    """Microseconds of one decision."""
    best = float("inf")
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        for _ in range(REPEATS):
            decide(document, EXAMPLE_FACTS)
        best = min(best, (time.perf_counter() - began_s) / REPEATS)
    return 1e6 * best


def replayed_per_s(document: PolicyDocument, count: int = 20_000) -> float:
    """Recorded requests of different kinds, decided again and weighed, per second of one core."""
    recorded = [
        Recorded(
            request_id=str(number),
            facts=replace(
                EXAMPLE_FACTS,
                key_id=f"key-{number % 97}",
                data_class=f"S{number % 5}",
                hour_utc=number % 24,
                input_tokens_estimate=number % 4_000,
            ),
            document_digest="",
            decision_digest="",
            is_refused=False,
            first="in-house",
            target="in-house",
            cost_microusd=100,
        )
        for number in range(count)
    ]
    began_s = time.process_time()
    impact(document, recorded)
    return count / (time.process_time() - began_s)


def main() -> None:
    shipped = load_document(resources.files("policies").joinpath("default.toml").read_text("utf-8"))
    print(f"decide, shipped policy: {cost_us(shipped):6.1f} us")
    for rules, sought in ((20, 15), (200, 100)):
        print(f"decide, {rules} rules: {cost_us(make_document(rules)):6.1f} us (sought {sought})")
    began_s = time.perf_counter()
    explain(shipped, EXAMPLE_FACTS)
    print(f"explain, shipped policy: {1e6 * (time.perf_counter() - began_s):6.1f} us, once")
    print(f"replay: {replayed_per_s(make_document(20)):,.0f} decisions a second (sought 20,000)")


if __name__ == "__main__":
    main()
