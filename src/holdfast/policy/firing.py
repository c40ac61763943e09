"""When a schedule fires, which of the firings that nobody dealt with are still to be made up for, and as which tasks.

Pure: no clock and no store, but the time zones of the system (zoneinfo). What a cron expression means is asked of
cronsim, on local time without a zone; what that is in real time is decided here, because cronsim walks whole hours and
loses firings where clocks move by half of one (Lord Howe). As in Debian's cron:

- An expression of fixed times (neither minute nor hour begins with `*`) fires once for each of them. One that the
  clocks jump over fires when they have jumped; one that they show twice fires the first time.
- Any other (`*/15 * * * *`, `0 * * * *`) follows real time: it fires whenever the clocks show such a time.

Intervals are whole multiples since 1970 in UTC, so that everybody who asks, also after a restart, gets the same
instants.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.clock import from_micros, iso, span_micros, to_micros
from holdfast.errors import InvalidTask
from holdfast.model.schedule import NewSchedule, Schedule, Timing
from holdfast.model.task import NewTask
from holdfast.policy import workflow
from holdfast.policy.admission import META_BYTES, checked_int, checked_name, checked_span, json_text

EVERY_SHORTEST = 1.0
ON_TIME_SECONDS = 60.0
"""With `missed="skip"`: a firing that is found later than this was missed."""
MISSED_MOST = 1000
MISSED = ("skip", "once", "all")
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)
_FIRST_LOOK = timedelta(minutes=1)
_SOME_DAY = datetime(2024, 1, 1)  # noqa: DTZ001  local time: only that something comes after it matters
_LONGEST = datetime(2024, 1, 1, microsecond=1, tzinfo=UTC)
"""An instant whose text is as long as any."""


# What may be declared


def timing_of(cron: Any, every: float | None, *, timezone: Any, jitter: float, missed: Any, missed_most: Any) -> Timing:
    """A timing that will fire, or InvalidTask. Spans are seconds."""
    if (cron is None) == (every is None):
        raise InvalidTask("a schedule has a cron expression, such as '0 3 * * *', or every=…, an interval: one of them")
    if every is not None and timezone != "UTC":
        raise InvalidTask("a time zone goes with a cron expression; an interval is the same everywhere")
    if missed not in MISSED:
        raise InvalidTask(f"missed is {missed!r}; say 'skip', 'once' or 'all'")
    return Timing(
        cron=None if cron is None else _checked_cron(cron),
        timezone=_checked_zone(timezone),
        every=None if every is None else _checked_interval(every),
        jitter=checked_span(jitter, what="jitter"),
        missed=missed,
        missed_most=checked_int(missed_most, 1, MISSED_MOST, what="missed_most"),
    )


def new_schedule(name: Any, timing: Timing, task: NewTask, *, declared: bool) -> NewSchedule:
    """A schedule of this task, or InvalidTask."""
    checked_name(_key(checked_name(name, what="the schedule's name"), _LONGEST), what="the key of the schedule's tasks")
    if task.run_at is not None or task.delay_seconds or task.idempotency_key is not None:
        raise InvalidTask(f"schedule {name!r} decides when its tasks run and by which key; leave that out of the call")
    workflow.check([task])
    _meta(name, task, _LONGEST)
    return NewSchedule(name=name, timing=timing, task=msgspec.structs.replace(task, id=""), declared=declared)


def _checked_cron(cron: Any) -> str:
    expression = _expression(checked_name(cron, what="the cron expression"))
    try:
        next(CronSim(expression, _SOME_DAY))
    except StopIteration:
        raise InvalidTask(f"cron expression {cron!r} never fires") from None
    except (CronSimError, AssertionError, TypeError, ValueError) as refused:
        hint = f"write five fields (minute hour day month weekday), or one of {', '.join(ALIASES)}"
        raise InvalidTask(f"cron expression {cron!r} is not understood ({refused}); {hint}") from None
    return str(cron)


def _checked_zone(timezone: Any) -> str:
    name = checked_name(timezone, what="the time zone")
    try:
        _zone(name)
    except (LookupError, ValueError, OSError):
        close = difflib.get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "it may need the package tzdata"
        raise InvalidTask(f"there is no time zone {name!r} on this machine; {hint}") from None
    return name


def _checked_interval(every: float) -> float:
    if checked_span(every, what="every") < EVERY_SHORTEST:
        raise InvalidTask(f"every is {every!r}; give at least {EVERY_SHORTEST:g} second")
    return float(every)


def begins_anew(known: Timing, new: Timing) -> bool:
    """Does it fire at other times than before? What lies between the two is nobody's then."""
    return (known.cron, known.timezone, known.every) != (new.cron, new.timezone, new.every)


# When it fires


def firings(timing: Timing, after: datetime, upto: datetime | None = None) -> Iterator[datetime]:
    """Its instants later than `after`, in order, up to `upto` if that is given."""
    last = after
    for instant in _from(timing, after):
        if upto is not None and instant > upto:
            return
        if instant > last:
            last = instant
            yield instant


@lru_cache(maxsize=4096)
def next_firing(timing: Timing, after: datetime) -> datetime | None:
    """None: not within fifty years."""
    return next(firings(timing, after), None)


def latest(timing: Timing, after: datetime, upto: datetime, most: int) -> list[datetime]:
    """The last `most` instants in that span, in order, at a cost that does not grow with its length."""
    span = _FIRST_LOOK
    while True:
        start = max(after, upto - span)
        found = deque(firings(timing, start, upto), maxlen=most)
        if len(found) == most or start == after:
            return list(found)
        span *= 2


def _from(timing: Timing, after: datetime) -> Iterator[datetime]:
    """Some before `after` may come first, and one twice."""
    if timing.every is not None:
        return _multiples(span_micros(timing.every), to_micros(after))
    assert timing.cron is not None
    expression, zone = _expression(timing.cron), _zone(timing.timezone)
    minute, hour = expression.split()[-5:-3]
    if minute.startswith("*") or hour.startswith("*"):
        return _whenever_shown(expression, zone, after)
    return _once_each(expression, zone, after)


def _multiples(every: int, after: int) -> Iterator[datetime]:
    number = after // every
    while True:
        number += 1
        yield from_micros(number * every)


def _once_each(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    for local in CronSim(expression, after.astimezone(zone).replace(tzinfo=None)):
        shown = _instants(local, zone)
        yield shown[0] if shown else _end_of_gap(local, zone)


def _whenever_shown(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """What is shown a second time comes after all that is shown a first time before it."""
    again: deque[datetime] = deque()
    for local in CronSim(expression, _start(after, zone)):
        shown = _instants(local, zone)
        while shown and again and again[0] < shown[0]:
            yield again.popleft()
        yield from shown[:1]
        again.extend(shown[1:])
    yield from again


def _start(after: datetime, zone: tzinfo) -> datetime:
    """The local time to walk from. While the clocks show what they will show again, that begins with the repetition."""
    local = after.astimezone(zone)
    first, second = _offsets(local, zone)
    repeated = first - second if local.fold == 0 and first > second else timedelta()
    return local.replace(tzinfo=None, fold=0) - repeated


def _instants(local: datetime, zone: tzinfo) -> list[datetime]:
    """When the clocks of the zone show this: once; twice, when they are put back; never, when they jump over it."""
    first, second = _offsets(local, zone)
    if first < second:
        return []
    return [(local - offset).replace(tzinfo=UTC) for offset in ((first,) if first == second else (first, second))]


def _offsets(local: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """How far the zone is from UTC at this local time. Where clocks are put back: the first time and the second. Where
    they jump over it: before and after (PEP 495).
    """
    first = local.replace(tzinfo=zone, fold=0).utcoffset()
    second = local.replace(tzinfo=zone, fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return first, second


def _end_of_gap(local: datetime, zone: tzinfo) -> datetime:
    """The moment at which the clocks jump over this local time."""
    before, after = _offsets(local, zone)
    early, late = ((local - offset).replace(tzinfo=UTC) for offset in (after, before))
    while late - early > _SECOND:
        middle = early + ((late - early) // _SECOND // 2) * _SECOND
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def _expression(cron: str) -> str:
    return ALIASES.get(cron.strip().lower(), cron)


def in_zone(instant: datetime, timing: Timing) -> datetime:
    """As the clocks of its zone show it."""
    return instant.astimezone(_zone(timing.timezone))


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


# What is to be submitted


class Due(msgspec.Struct, frozen=True):
    instants: tuple[datetime, ...]
    """To be submitted, in order; none where all that was missed is skipped."""
    upto: datetime
    """The last firing that is dealt with by that."""


def due(schedule: Schedule, now: datetime) -> Due | None:
    """What is to be done for the firings since the last one that was dealt with; None: there was none."""
    timing = schedule.timing
    wanted = timing.missed_most if timing.missed == "all" else 1
    found = latest(timing, schedule.last_fired_at, now, wanted)
    if not found:
        return None
    if timing.missed == "skip" and now - found[-1] > timedelta(seconds=ON_TIME_SECONDS):
        return Due((), found[-1])
    return Due(tuple(found), found[-1])


def task_for(schedule: Schedule, instant: datetime, task_id: str) -> NewTask:
    """The task of one firing: the same for everybody, but for its id."""
    return msgspec.structs.replace(
        schedule.task,
        id=task_id,
        run_at=instant + _jitter(schedule, instant),
        idempotency_key=_key(schedule.name, instant),
        meta=_meta(schedule.name, schedule.task, instant),
    )


def task_now(schedule: Schedule, now: datetime, task_id: str) -> NewTask:
    """The task of a run besides the plan."""
    return msgspec.structs.replace(schedule.task, id=task_id, meta=_meta(schedule.name, schedule.task, now))


def _key(name: str, instant: datetime) -> str:
    return f"schedule:{name}:{iso(to_micros(instant))}"


def _meta(name: str, task: NewTask, instant: datetime) -> str:
    """What its handler can ask: for which firing of which schedule it runs."""
    given = {} if task.meta is None else msgspec.json.decode(task.meta)
    fired = {"schedule": {"name": name, "at": iso(to_micros(instant))}}
    return json_text(given | fired, what=f"the meta of schedule {name!r}", limit_bytes=META_BYTES)


def _jitter(schedule: Schedule, instant: datetime) -> timedelta:
    digest = hashlib.blake2b(_key(schedule.name, instant).encode(), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    return timedelta(microseconds=int(share * span_micros(schedule.timing.jitter)))
