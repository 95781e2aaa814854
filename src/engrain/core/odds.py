"""How far a few trials can be trusted."""

from __future__ import annotations

import math

Z = 1.645  # one-sided 95 %


def at_least(successes: int, failures: int) -> float:
    """The success rate that these trials speak for: the lower end of Wilson's interval, with one success and one
    failure imagined besides. So what was never tried stands between what failed and what worked: .12 untried, .25 for
    1 of 1, .55 for 5 of 5, .70 for 10 of 10, .05 for 0 of 3."""
    tried = successes + failures + 2
    share = (successes + 1) / tried
    spread = Z * math.sqrt(share * (1 - share) / tried + Z * Z / (4 * tried * tried))
    return (share + Z * Z / (2 * tried) - spread) / (1 + Z * Z / tried)
