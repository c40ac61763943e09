"""When schedules fire, against a second opinion: a walk through real time, looking at the clock on the wall.

The walk knows nothing of gaps and folds. It goes on in real time, asks zoneinfo what the clock shows, and remembers the
latest time that it has shown so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidTask
from holdfast.model.schedule import Schedule, Timing
from holdfast.model.task import NewTask
from holdfast.policy import firing
from holdfast.policy.firing import due, firings, latest, next_firing, task_for, task_now, timing_of

ZONES = [
    "Europe/Zurich", "Europe/London", "Europe/Dublin", "Europe/Chisinau", "Europe/Istanbul", "America/New_York",
    "America/St_Johns", "America/Santiago", "America/Asuncion", "America/Havana", "America/Nuuk", "America/Sao_Paulo",
    "America/Phoenix", "America/Los_Angeles", "Atlantic/Azores", "Africa/Casablanca", "Africa/Cairo", "Africa/Lagos",
    "Asia/Beirut", "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney",
    "Australia/Adelaide", "Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Auckland", "Antarctica/Troll",
]  # fmt: skip
START, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
INSTANTS = st.integers(0, (END - START) // timedelta(microseconds=1)).map(lambda n: START + timedelta(microseconds=n))
QUARTER, MINUTE = timedelta(minutes=15), timedelta(minutes=1)

Day = Callable[[datetime], bool]
Times = tuple[set[tuple[int, int]], Day]
"""What an expression means, written out: times of a day, and which days."""


def each_day(_: datetime) -> bool:
    return True


def at(*marks: str) -> set[tuple[int, int]]:
    return {(int(mark[:2]), int(mark[3:])) for mark in marks}


def every_hour(minutes: Iterable[int], hours: Iterable[int] = range(24)) -> set[tuple[int, int]]:
    return set(product(hours, minutes))


# By real time; all their minutes are quarters of an hour.
FLOWING: dict[str, Times] = {
    "@hourly": (every_hour([0]), each_day),
    "*/30 2 * * *": (at("02:00", "02:30"), each_day),
}
FLOWING_DENSELY: dict[str, Times] = {
    "*/15 * * * *": (every_hour([0, 15, 30, 45]), each_day),
    "45 * * * *": (every_hour([45]), each_day),
    "0 */2 * * *": (every_hour([0], range(0, 24, 2)), each_day),
}
# Once for each.
FIXED: dict[str, Times] = {
    "30 1 * * *": (at("01:30"), each_day),
    "30 2 * * *": (at("02:30"), each_day),
    "0 3 * * *": (at("03:00"), each_day),
    "@daily": (at("00:00"), each_day),
    "15,45 0-3 * * *": (every_hour([15, 45], range(4)), each_day),
    "30 2 1 * *": (at("02:30"), lambda day: day.day == 1),
    "@monthly": (at("00:00"), lambda day: day.day == 1),
    "15 2 * * SUN": (at("02:15"), lambda day: day.weekday() == 6),
    "@weekly": (at("00:00"), lambda day: day.weekday() == 6),
}
# To the minute; only walked around the changes.
FLOWING_FINELY: dict[str, Times] = FLOWING_DENSELY | {
    "* * * * *": (every_hour(range(60)), each_day),
    "7,53 * * * *": (every_hour([7, 53]), each_day),
    "*/7 1-3 * * *": (every_hour(range(0, 60, 7), range(1, 4)), each_day),
}
FIXED_FINELY: dict[str, Times] = {
    "13 2 * * *": (at("02:13"), each_day),
    "7,53 0-3 * * *": (every_hour([7, 53], range(4)), each_day),
}


def cron(expression: str, zone: str = "UTC", **options: Any) -> Timing:
    given: dict[str, Any] = {"jitter": 0, "missed": "once", "missed_most": 100} | options
    return timing_of(expression, None, timezone=zone, **given)


def every(seconds: float, **options: Any) -> Timing:
    given: dict[str, Any] = {"jitter": 0, "missed": "once", "missed_most": 100} | options
    return timing_of(None, seconds, timezone="UTC", **given)


Moments = dict[tuple[int, int], list[tuple[datetime, datetime]]]
"""By the time of a day: when, in real time, and which local time that is."""


def walk(zone: str, start: datetime, end: datetime, step: timedelta) -> tuple[Moments, Moments]:
    """What the clock on the wall shows; and what it has passed by now that it had not passed before."""
    wall, shows, passes = ZoneInfo(zone), defaultdict(list), defaultdict(list)
    furthest = start.astimezone(wall).replace(tzinfo=None, fold=0)
    for now in times(start, end, step):
        shown = now.astimezone(wall).replace(tzinfo=None, fold=0)
        shows[shown.hour, shown.minute].append((now, shown))
        for passed in times(furthest, shown, step):
            passes[passed.hour, passed.minute].append((now, passed))
        furthest = max(furthest, shown)
    return shows, passes


def found(moments: Moments, meant: Times) -> list[datetime]:
    marks, wanted = meant
    return sorted({now for mark in marks for now, local in moments[mark] if wanted(local)})


def times(after: datetime, upto: datetime, step: timedelta) -> Iterator[datetime]:
    while (after := after + step) <= upto:
        yield after


def changes(zone: str) -> list[datetime]:
    """The days on which the clocks are changed."""
    wall = ZoneInfo(zone)
    days = [START + timedelta(days=n) for n in range((END - START).days)]
    return [
        one
        for one in days
        if one.astimezone(wall).utcoffset() != (one + timedelta(days=1)).astimezone(wall).utcoffset()
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_over_three_years_every_firing_comes_once_and_none_is_lost(zone: str) -> None:
    shows, passes = walk(zone, START, END, QUARTER)
    for moments, expressions in ((shows, FLOWING), (passes, FIXED)):
        for expression, meant in expressions.items():
            assert list(firings(cron(expression, zone), START, END)) == found(moments, meant), expression


@pytest.mark.soak
@pytest.mark.parametrize("zone", ZONES)
def test_the_dense_ones_too(zone: str) -> None:
    """In `make test` these are only walked around the changes."""
    shows, _ = walk(zone, START, END, QUARTER)
    for expression, meant in FLOWING_DENSELY.items():
        assert list(firings(cron(expression, zone), START, END)) == found(shows, meant), expression


@pytest.mark.parametrize("zone", [zone for zone in ZONES if changes(zone)])
def test_around_every_change_of_the_clocks_it_holds_to_the_minute(zone: str) -> None:
    for day in changes(zone):
        start, end = day - timedelta(hours=4), day + timedelta(hours=28)
        shows, passes = walk(zone, start, end, MINUTE)
        for moments, expressions in ((shows, FLOWING_FINELY), (passes, FIXED_FINELY)):
            for expression, meant in expressions.items():
                assert list(firings(cron(expression, zone), start, end)) == found(moments, meant), (expression, day)


@pytest.mark.parametrize("zone", [zone for zone in ZONES if changes(zone)])
def test_it_does_not_matter_from_when_one_looks(zone: str) -> None:
    """Whoever looks again after a restart finds the same firings: also from within an hour that is shown twice."""
    for expression in ("*/20 * * * *", "7,53 0-3 * * *", "0 */2 * * *"):
        timing = cron(expression, zone)
        for day in changes(zone)[:2]:
            whole = list(firings(timing, day - timedelta(hours=4), day + timedelta(hours=32)))
            for start in times(day - timedelta(hours=4), day + timedelta(hours=28), timedelta(minutes=17)):
                end = start + timedelta(hours=3)
                rest = [instant for instant in whole if start < instant <= end]
                assert list(firings(timing, start, end)) == rest, (expression, start)
                assert not rest or next_firing(timing, start) == rest[0]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_fixed_time_that_the_clocks_jump_over_fires_when_they_have_jumped() -> None:
    """In Zurich, on 29 March 2026, 02:00 is followed by 03:00."""
    timing = cron("30 2 * * *", "Europe/Zurich")
    days = list(firings(timing, utc("2026-03-28T00:00"), utc("2026-03-30T23:00")))
    assert days == [utc("2026-03-28T01:30"), utc("2026-03-29T01:00"), utc("2026-03-30T00:30")]


def test_fixed_times_that_fall_together_by_that_fire_once() -> None:
    timing = cron("0,30 2,3 * * *", "Europe/Zurich")
    night = list(firings(timing, utc("2026-03-29T00:00"), utc("2026-03-29T12:00")))
    assert night == [utc("2026-03-29T01:00"), utc("2026-03-29T01:30")]


def test_a_fixed_time_that_the_clocks_show_twice_fires_the_first_time() -> None:
    """In Zurich, on 25 October 2026, 02:59 is followed by 02:00."""
    timing = cron("30 2 * * *", "Europe/Zurich")
    night = list(firings(timing, utc("2026-10-25T00:00"), utc("2026-10-26T00:00")))
    assert night == [utc("2026-10-25T00:30")]
    assert next_firing(timing, utc("2026-10-25T01:10")) == utc("2026-10-26T01:30")


def test_an_expression_with_a_star_follows_real_time() -> None:
    hourly = cron("0 * * * *", "Europe/Zurich")
    for start in (utc("2026-03-29T00:30"), utc("2026-10-25T00:30")):
        hours = list(firings(hourly, start, start + timedelta(hours=3)))
        assert [later - earlier for earlier, later in pairwise(hours)] == [timedelta(hours=1)] * 2
    in_the_gap = cron("*/30 2 * * *", "Europe/Zurich")
    assert not list(firings(in_the_gap, utc("2026-03-29T00:00"), utc("2026-03-29T12:00")))
    assert len(list(firings(in_the_gap, utc("2026-10-25T00:00") - MINUTE, utc("2026-10-25T12:00")))) == 4


@given(st.integers(1_000_000, 10**12), INSTANTS, st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_intervals_are_whole_multiples_whoever_asks(micros: int, start: datetime, wanted: int) -> None:
    timing, span = every(micros / 1e6), timedelta(microseconds=micros)
    found = list(firings(timing, start, start + wanted * span))
    assert len(found) == wanted
    assert start < found[0] <= start + span
    assert all((one - datetime(1970, 1, 1, tzinfo=UTC)) % span == timedelta() for one in found)
    assert latest(timing, start, start + wanted * span, 3) == found[-3:]


@given(
    st.sampled_from(["*/20 * * * *", "0 3 * * *", "@monthly", "15 2 * * SUN", "* 3 1 * *"]),
    st.sampled_from(ZONES),
    INSTANTS,
    st.timedeltas(timedelta(), timedelta(days=40)),
    st.integers(1, 50),
)
@settings(max_examples=200, deadline=None)
def test_the_latest_are_the_last_of_all(
    expression: str, zone: str, start: datetime, span: timedelta, most: int
) -> None:
    timing = cron(expression, zone)
    assert latest(timing, start, start + span, most) == list(firings(timing, start, start + span))[-most:]


def test_years_of_missed_firings_cost_no_more_than_the_wanted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    real = firing._instants

    def counted(*args: Any) -> list[datetime]:
        nonlocal steps
        steps += 1
        return real(*args)

    monkeypatch.setattr(firing, "_instants", counted)
    assert len(latest(cron("* * * * *"), START - timedelta(days=20_000), START, 100)) == 100
    assert steps < 1000


# Which are to be made up for

NOW = utc("2026-06-01T12:00:30")


def schedule(timing: Timing, last_fired_at: datetime, **task: Any) -> Schedule:
    return Schedule(
        name="tidy",
        timing=timing,
        task=NewTask(**({"id": "", "name": "tidy_up", "payload": "null"} | task)),
        paused=False,
        created_at=last_fired_at,
        last_fired_at=last_fired_at,
        declared_at=None,
    )


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_nothing_is_due_between_two_firings(missed: str) -> None:
    assert due(schedule(every(60, missed=missed), utc("2026-06-01T12:00")), NOW) is None


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_nothing_is_due_where_the_clock_has_gone_back(missed: str) -> None:
    assert due(schedule(every(60, missed=missed), NOW + timedelta(hours=1)), NOW) is None


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_firing_on_time_is_fired_whatever_the_policy(missed: str) -> None:
    found = due(schedule(every(60, missed=missed), utc("2026-06-01T11:59")), NOW)
    assert found == firing.Due((utc("2026-06-01T12:00"),), utc("2026-06-01T12:00"))


def test_of_those_that_were_missed_the_policy_takes_none_the_last_or_the_last_few() -> None:
    since, upto = utc("2026-06-01T02:00"), utc("2026-06-01T11:00")
    hours = [upto - timedelta(hours=n) for n in range(8, -1, -1)]
    found = {
        missed: due(schedule(cron("0 0-11 * * *", missed=missed, missed_most=most), since), NOW)
        for missed, most in (("skip", 1), ("once", 1), ("all", 100))
    }
    assert found == {
        "skip": firing.Due((), upto),
        "once": firing.Due((upto,), upto),
        "all": firing.Due(tuple(hours), upto),
    }
    few = due(schedule(cron("0 0-11 * * *", missed="all", missed_most=3), since), NOW)
    assert few == firing.Due(tuple(hours[-3:]), upto)


@pytest.mark.parametrize(("late", "fires"), [(60.0, True), (60.000001, False)])
def test_on_time_means_within_a_minute(late: float, fires: bool) -> None:
    instant = utc("2026-06-01T12:00")
    found = due(
        schedule(cron("0 12 * * *", missed="skip"), instant - timedelta(days=1)), instant + timedelta(seconds=late)
    )
    assert found == firing.Due((instant,) if fires else (), instant)


# As which tasks


def test_a_firing_is_the_same_task_for_everybody_but_for_its_id() -> None:
    one = schedule(every(60, jitter=30), NOW, queue="mail", meta='{"tenant":"a"}')
    instant = utc("2026-06-01T12:01")
    first, second = task_for(one, instant, "id-1"), task_for(one, instant, "id-2")
    assert msgspec.structs.replace(first, id="id-2") == second
    assert first.idempotency_key == "schedule:tidy:2026-06-01T12:01:00Z"
    assert (first.name, first.queue, first.payload) == ("tidy_up", "mail", "null")
    assert msgspec.json.decode(str(first.meta)) == {
        "tenant": "a",
        "schedule": {"name": "tidy", "at": "2026-06-01T12:01:00Z"},
    }


def test_without_jitter_a_task_is_due_at_its_firing() -> None:
    instant = utc("2026-06-01T12:01")
    assert task_for(schedule(every(60), NOW), instant, "id").run_at == instant


def test_jitter_spreads_tasks_over_its_whole_length_and_not_beyond() -> None:
    one = schedule(every(60, jitter=30), NOW)
    instants = list(firings(one.timing, NOW, NOW + timedelta(hours=10)))
    offsets = [(task_for(one, instant, "").run_at or instant) - instant for instant in instants]
    assert all(timedelta() <= offset < timedelta(seconds=30) for offset in offsets)
    assert len({offset // timedelta(seconds=5) for offset in offsets}) == 6


def test_a_run_besides_the_plan_has_no_key_and_no_time_of_its_own() -> None:
    task = task_now(schedule(every(60), NOW), NOW, "id")
    assert (task.id, task.run_at, task.idempotency_key) == ("id", None, None)
    assert msgspec.json.decode(str(task.meta)) == {"schedule": {"name": "tidy", "at": "2026-06-01T12:00:30Z"}}


# What is refused

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "one of them"),
    ({"cron": "@daily", "every": 5.0}, "one of them"),
    ({"cron": ""}, "non-empty"),
    ({"cron": 7}, "give a non-empty string"),
    ({"cron": "* * * *"}, "five fields"),
    ({"cron": "60 * * * *"}, "Bad minute"),
    ({"cron": "@reboot"}, "@hourly, @daily"),
    ({"cron": "0 0 31 2 *"}, "Bad day-of-month"),
    ({"cron": "0 0 * 2 1#5,2#5/2"}, "not understood"),
    ({"cron": "* * * * MON#1/2"}, "not understood"),
    ({"cron": "1/" * 250 + "1 * * * *"}, "not understood|takes"),
    ({"cron": "@daily", "timezone": "Europe/Zuerich"}, "did you mean 'Europe/Zurich'"),
    ({"cron": "@daily", "timezone": "Europe"}, "no time zone"),
    ({"cron": "@daily", "timezone": "../etc/passwd"}, "no time zone"),
    ({"cron": "@daily", "timezone": None}, "non-empty string"),
    ({"every": 0.999}, "at least 1 second"),
    ({"every": -1.0}, "from 0 to ten years"),
    ({"every": float("nan")}, "from 0 to ten years"),
    ({"every": 60.0, "timezone": "Europe/Zurich"}, "goes with a cron expression"),
    ({"every": 60.0, "missed": "twice"}, "'skip', 'once' or 'all'"),
    ({"every": 60.0, "missed_most": 0}, "missed_most"),
    ({"every": 60.0, "missed_most": 1001}, "missed_most"),
    ({"every": 60.0, "jitter": -1.0}, "jitter"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_could_never_work_is_refused_when_it_is_declared(given: dict[str, Any], words: str) -> None:
    wanted: dict[str, Any] = {"timezone": "UTC", "jitter": 0.0, "missed": "once", "missed_most": 100} | given
    with pytest.raises(InvalidTask, match=words):
        timing_of(wanted.pop("cron", None), wanted.pop("every", None), **wanted)


@pytest.mark.parametrize(
    "expression", ["@Daily", " @weekly ", "*/5 * * * * *", "0 9 LW * *", "0 9 * * FRI#2", "0 9 l * *"]
)
def test_other_ways_of_writing_are_understood(expression: str) -> None:
    assert next_firing(cron(expression), START) is not None


@pytest.mark.parametrize("field", [{"run_at": NOW}, {"delay_seconds": 1.0}, {"idempotency_key": "k"}])
def test_a_call_with_a_time_or_a_key_of_its_own_is_no_schedules(field: dict[str, Any]) -> None:
    task = NewTask(id="x", name="n", payload="null", **field)
    with pytest.raises(InvalidTask, match="leave that out"):
        firing.new_schedule("s", every(60), task, declared=True)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 480, None])
def test_a_name_that_could_not_be_part_of_a_key_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTask):
        firing.new_schedule(name, every(60), NewTask(id="", name="n", payload="null"), declared=True)


def test_only_other_times_make_it_begin_anew() -> None:
    known = cron("@daily", "Europe/Zurich")
    same = msgspec.structs.replace(known, missed="all", missed_most=5, jitter=3.0)
    assert not firing.begins_anew(known, same)
    for change in ({"cron": "@hourly"}, {"timezone": "UTC"}, {"cron": None, "every": 60.0}):
        assert firing.begins_anew(known, msgspec.structs.replace(known, **change))
