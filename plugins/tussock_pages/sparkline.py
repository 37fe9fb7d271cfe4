"""Sparklines: small SVG lines of a series of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, PAD = 120, 28, 3


@dataclass(frozen=True, slots=True)
class Sparkline:
    """The paths of a line and its area, the place of the last point, and the least, largest and last number."""

    line: str
    area: str
    x: float
    y: float
    least: float
    most: float
    last: float


def sparkline(numbers: Sequence[float | None]) -> Sparkline | None:
    """Draw a line through these numbers, oldest first. It skips None values. Returns None if all values are None.

    The baseline is 0, or the least number if that is negative, so that sparklines can be compared.
    """
    known = [(place, float(number)) for place, number in enumerate(numbers) if number is not None]
    if not known:
        return None
    foot, most = min(0.0, *(number for _, number in known)), max(0.0, *(number for _, number in known))
    step = (WIDTH - 2 * PAD) / max(1, len(numbers) - 1)

    def at(place: int, number: float) -> tuple[float, float]:
        return PAD + place * step, HEIGHT - PAD - (HEIGHT - 2 * PAD) * (
            (number - foot) / (most - foot) if most > foot else 0
        )

    spots = [at(place, number) for place, number in known]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    area = f"{line}V{HEIGHT - PAD}H{spots[0][0]:.1f}Z"
    return Sparkline(line, area, *spots[-1], min(n for _, n in known), max(n for _, n in known), known[-1][1])
