"""Reads cascades in the decision log as data for checking a new threshold. Pure.

If both tiers answered, the record says how far they agreed and how likely it was that both would be
asked; if the cheap answer was kept, it says only how likely. Streams keep no pair, and are left
out.
"""

from classifiers.calibration.learning import Logged
from gateway.types import AuditRecord


PPM = 1_000_000
AGREES_FROM = 0.5
"""Share of common words from which a cheap answer counts as agreeing with the dear one."""
_END, _SCORE = "cascade", "cascade_score_ppm"
_ODDS, _AGREEMENT = "cascade_propensity_ppm", "cascade_agreement_ppm"


def logged_of(record: AuditRecord) -> Logged | None:
    """One cascade as the estimators take it; None if the record says too little.

    The dear answer counts as the truth: a request that only the cheap tier answered is logged as
    one of the dear tier, so that it says nothing about the cheap one, with the odds of that.
    """
    detail = record.detail
    if record.stage != "outcome" or not {_END, _SCORE, _ODDS} <= detail.keys():
        return None
    p_weak = 1.0 - int(detail[_SCORE]) / PPM
    odds = int(detail[_ODDS]) / PPM
    if detail[_END] == "kept":
        return Logged(p_weak, cheap=False, propensity=odds, succeeded=True)
    if _AGREEMENT not in detail:
        return None
    agrees = int(detail[_AGREEMENT]) / PPM >= AGREES_FROM
    return Logged(p_weak, cheap=True, propensity=odds, succeeded=agrees)
