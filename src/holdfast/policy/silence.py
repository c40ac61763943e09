"""Whose fault is it that no answer comes, the sink's or the row's? (contract C12.3)

A request that hangs, or whose connection breaks, does not say. A sink that is down is silent to everybody, and no row
is to be blamed for it. A row that hangs or kills its receiver meets silence while others are answered: it must end
dead, and must not pass for a sink that is down. So it takes three steps, which may fall into one batch:

    a row meets silence ──► the sink answers somebody ──► the row meets silence again: it is blamed, and told apart

Once it is blamed, every silence costs it a try, unless the sink is known to be away: that another row is met with
silence too is what makes it known. All this is one relay's memory. Another one, or the same after a restart, learns it
anew from two silences, which cost no try; so it comes to the same end.
"""

from __future__ import annotations

REMEMBERED = 10_000
"""Rows per sink; the oldest are forgotten first, and learned anew."""


class Silences:
    """What one relay has seen of one sink."""

    def __init__(self) -> None:
        self.answers = 0
        """How often it has answered anything, be it a refusal."""
        self._met: dict[int, int] = {}
        """Rows that met silence, and how many answers there were before."""
        self._blamed: set[int] = set()

    def met_by(self, row_id: int) -> bool:
        return row_id in self._met

    def apart(self, row_id: int) -> bool:
        """To be told apart from others: it would hold them up."""
        return row_id in self._blamed

    def heard(self, row_id: int) -> None:
        """The sink has answered this row."""
        self.answers += 1
        self._met.pop(row_id, None)
        self._blamed.discard(row_id)

    def blames(self, row_id: int, answers_before: int, *, away: bool) -> bool:
        """Is it the row's fault that it met silence? `answers_before` is from when it was told."""
        before = self._met.setdefault(row_id, answers_before)
        if len(self._met) > REMEMBERED:
            forgotten = next(iter(self._met))
            del self._met[forgotten]
            self._blamed.discard(forgotten)
        if away or before == self.answers:
            return False
        self._blamed.add(row_id)
        return True
