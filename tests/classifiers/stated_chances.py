"""How far stated chances are from what happened (expected calibration error, ECE)."""

from collections.abc import Sequence

from classifiers.calibration.maps import Label


BINS = 10


def expected_calibration_error(labels: Sequence[Label]) -> float:
    """Over bins of equal mass: how far stated chances are from frequencies, on average."""
    ordered = sorted(labels, key=lambda label: label.p_weak)
    error = 0.0
    for at in range(BINS):
        part = ordered[len(ordered) * at // BINS : len(ordered) * (at + 1) // BINS]
        stated = sum(label.p_weak for label in part)
        error += abs(stated - sum(label.succeeded for label in part))
    return error / (len(ordered) or 1)
