"""The schedules of the memory store, while its lock is held."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.policy import refusals
from holdfast.policy.firing import begins_anew


class Schedules:
    def __init__(self, known: Mapping[str, Schedule] | None = None) -> None:
        self._by_name: dict[str, Schedule] = dict(known or {})

    def all(self) -> list[Schedule]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def find(self, name: str) -> Schedule | None:
        return self._by_name.get(name)

    def declare(self, new: NewSchedule, now: datetime) -> Schedule:
        known = self._by_name.get(new.name)
        last_fired_at = now if known is None else known.last_fired_at
        if known is not None and begins_anew(known.timing, new.timing):
            last_fired_at = max(now, known.last_fired_at)
        made = self._by_name[new.name] = Schedule(
            name=new.name,
            timing=new.timing,
            task=new.task,
            paused=known is not None and known.paused,
            created_at=now if known is None else known.created_at,
            last_fired_at=last_fired_at,
            declared_at=now if new.declared else None,
        )
        return made

    def stands_at(self, name: str, last_fired_at: datetime) -> bool:
        """May it be fired by somebody who takes it to stand there?"""
        known = self._by_name.get(name)
        return known is not None and not known.paused and known.last_fired_at == last_fired_at

    def move(self, name: str, last_fired_at: datetime) -> None:
        self._by_name[name] = msgspec.structs.replace(self._by_name[name], last_fired_at=last_fired_at)

    def pause(self, name: str, now: datetime, *, paused: bool) -> None:
        known = self.known(name)
        resumed = known.paused and not paused
        last_fired_at = max(now, known.last_fired_at) if resumed else known.last_fired_at
        self._by_name[name] = msgspec.structs.replace(known, paused=paused, last_fired_at=last_fired_at)

    def delete(self, name: str) -> None:
        del self._by_name[self.known(name).name]

    def known(self, name: str) -> Schedule:
        known = self._by_name.get(name)
        if known is None:
            raise refusals.schedule_not_found(name)
        return known
