"""SELECT holdfast.enqueue(…): from plain SQL and from triggers, with the client's rules and defaults (C4.4, C4.5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import errors

from holdfast import Delays, Exponential, Fixed, Holdfast, Linear
from holdfast.model.backoff import backoff_text
from tests import postgres_server

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Shop:
    def __init__(self) -> None:
        self.schema = postgres_server.fresh_schema()
        self.app = Holdfast(postgres_server.server().url, schema=self.schema)
        self.seen: list[Any] = []

        @self.app.task(name="send")
        async def send(*args: Any, **kwargs: Any) -> None:
            self.seen.append((list(args), kwargs))

        self.app.queues.list()
        self.connection = psycopg.connect(postgres_server.server().url)

    def enqueue(self, arguments: str, *values: Any) -> str:
        found = self.connection.execute(f"select {self.schema}.enqueue({arguments})", values).fetchone()
        assert found is not None
        return str(found[0])

    def work(self) -> list[Any]:
        self.connection.commit()
        self.app.worker().run(until_idle=True)
        return self.seen


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    with made.app, made.connection:
        yield made


def test_a_task_comes_with_the_transaction_and_runs(shop: Shop) -> None:
    task_id = shop.enqueue("""'send', '{"args": [1, "é", -0.0, 1e16, "\\u0000"], "kwargs": {"b": null}}'""")
    assert UUID7.fullmatch(task_id)
    assert repr(shop.work()) == repr([([1, "é", -0.0, 1e16, "\x00"], {"b": None})])
    assert shop.app.tasks.get(task_id).status == "completed"
    assert shop.app.tasks.events(task_id)[0].kind == "task.enqueued"


def test_a_task_goes_with_the_transaction(shop: Shop) -> None:
    shop.enqueue("'send'")
    shop.connection.rollback()
    assert shop.app.tasks.count()["queued"] == 0


def test_what_is_left_out_is_what_the_client_would_say(shop: Shop) -> None:
    handle, task_id = shop.app.enqueue("send"), shop.enqueue("'send'")
    shop.connection.commit()
    theirs, ours = msgspec.structs.asdict(shop.app.tasks.get(task_id)), msgspec.structs.asdict(handle.task())
    for field in ("id", "created_at", "run_at"):
        del theirs[field], ours[field]
    assert theirs == ours


def test_either_part_of_a_call_may_be_left_out(shop: Shop) -> None:
    shop.enqueue("""'send', '{"args": [1]}'""")
    shop.enqueue("""'send', '{"kwargs": {"a": "\\u0000 \\\\u0000"}}  '""")
    assert shop.work() == [([1], {}), ([], {"a": "\x00 \\u0000"})]


def test_every_option_reaches_the_record(shop: Shop) -> None:
    task_id = shop.enqueue(
        """'other', '[1, 2]', queue => 'mail', priority => -7, delay => 3600, max_attempts => 0, timeout => 1.5,
        lease => 30, backoff => '{"type": "fixed", "delay": 2}', idempotency_key => 'k', concurrency_key => 'c',
        run_id => 'r', meta => '{"trace": "t"}'"""
    )
    shop.connection.commit()
    task = shop.app.tasks.get(task_id)
    assert (task.name, task.payload, task.queue, task.priority) == ("other", [1, 2], "mail", -7)
    assert (task.max_attempts, task.timeout, task.lease, task.backoff) == (0, 1.5, 30, Fixed(2.0))
    assert (task.idempotency_key, task.concurrency_key, task.run_id, task.meta) == ("k", "c", "r", {"trace": "t"})
    assert (task.run_at - task.created_at).total_seconds() == 3600


@pytest.mark.parametrize("backoff", [Exponential(), Exponential(1, 2, 0), Fixed(5), Linear(5, cap=60), Delays(1, 5.5)])
def test_every_backoff_can_be_given_in_its_own_words(shop: Shop, backoff: Any) -> None:
    task_id = shop.enqueue("'send', backoff => %s", backoff_text(backoff))
    shop.connection.commit()
    assert shop.app.tasks.get(task_id).backoff == backoff


def test_run_at_is_kept(shop: Shop) -> None:
    task_id = shop.enqueue("'send', run_at => '2031-02-03 04:05:06.789012+02'")
    shop.connection.commit()
    assert shop.app.tasks.get(task_id).run_at.isoformat() == "2031-02-03T02:05:06.789012+00:00"


def test_a_known_key_answers_with_its_task_and_another_name_is_refused(shop: Shop) -> None:
    handle = shop.app.using(idempotency_key="k").enqueue("send")
    assert shop.enqueue("'send', idempotency_key => 'k'") == handle.id
    with pytest.raises(errors.UniqueViolation, match=f"belongs to task {handle.id} named 'send', not 'other'"):
        shop.enqueue("'other', idempotency_key => 'k'")


LONG = "x" * 513
REFUSED = {
    "no name": "''",
    "a null name": "null",
    "a long name": f"'{LONG}'",
    "a control character": "E'a\\nb'",
    "a late control character": "E'a\\u0085b'",
    "no payload": "'send', null",
    "a wide priority": "'send', priority => 32768",
    "a negative delay": "'send', delay => -1",
    "a delay that is no number": "'send', delay => 'NaN'",
    "an infinite instant": "'send', run_at => 'infinity'",
    "an instant that Python has not": "'send', run_at => '12000-01-01'",
    "both run_at and delay": "'send', run_at => now(), delay => 1",
    "a negative budget": "'send', max_attempts => -1",
    "no time": "'send', timeout => 0",
    "an endless lease": "'send', lease => 'Infinity'",
    "an empty key": "'send', idempotency_key => ''",
    "an empty queue": "'send', queue => ''",
    "meta that is no object": "'send', meta => '[]'",
    "a backoff of no kind": """'send', backoff => '{"type": "sometimes"}'""",
    "a backoff that is a list": "'send', backoff => '[1]'",
    "a backoff without its delay": """'send', backoff => '{"type": "fixed"}'""",
    "a backoff in words": """'send', backoff => '{"type": "fixed", "delay": "1"}'""",
    "a negative backoff": """'send', backoff => '{"type": "delays", "delays": [1, -1]}'""",
    "no delays": """'send', backoff => '{"type": "delays", "delays": []}'""",
    "too much jitter": """'send', backoff => '{"type": "exponential", "jitter": 2}'""",
    "half a character": """'send', '["\\ud800"]'""",
    "the other half": """'send', '["\\udc00"]'""",
    "halves in the wrong order": """'send', '["\\udc00\\ud800"]'""",
    "a number beyond a double": "'send', '[1e400]'",
    "a long number": f"'send', '[{'9' * 309}]'",
    "too deep": f"'send', '{'[' * 201}{']' * 201}'",
    "too large": "'send', json_build_array(repeat('x', 1048576))",
    "large meta": "'send', meta => json_build_object('x', repeat('x', 16384))",
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses(shop: Shop, what: str) -> None:
    with pytest.raises(errors.DataError if what not in ("too large", "large meta") else errors.ProgramLimitExceeded):
        shop.enqueue(REFUSED[what])
    shop.connection.rollback()
    assert sum(shop.app.tasks.count().values()) == 0


@pytest.mark.parametrize(
    "payload",
    [
        f"{'[' * 200}{']' * 200}",
        '["\\ud83d\\ude00", "\\\\ud800", "\\\\\\\\udc00"]',
        '["[[[", "}}}", "1e999", "\\""]',
        f"[{'9' * 308}, -1e308, 1e-7]",
        '" \\" \\\\"',
        "null",
        "[]",
    ],
)
def test_it_takes_whatever_a_worker_can_read(shop: Shop, payload: str) -> None:
    task_id = shop.enqueue("'other', %s", payload)
    shop.connection.commit()
    assert shop.app.tasks.get(task_id).payload == msgspec.json.decode(payload)


def test_a_trigger_submits_for_every_row_that_stays(shop: Shop) -> None:
    shop.connection.execute(
        f"""
        create table {shop.schema}.orders (no integer);
        create function {shop.schema}.ordered() returns trigger language plpgsql as $$
        begin
            perform {shop.schema}.enqueue('send', json_build_object('args', json_build_array(new.no)),
                idempotency_key => 'order ' || new.no);
            return new;
        end $$;
        create trigger ordered after insert on {shop.schema}.orders
            for each row execute function {shop.schema}.ordered();
        """
    )
    shop.connection.commit()
    shop.connection.execute(f"insert into {shop.schema}.orders select n from generate_series(1, 3) as n")
    assert shop.work() == [([1], {}), ([2], {}), ([3], {})]
    shop.connection.execute(f"insert into {shop.schema}.orders values (3)")
    assert len(shop.work()) == 3, "the key is known"
    shop.connection.execute(f"insert into {shop.schema}.orders values (4)")
    shop.connection.rollback()
    assert len(shop.work()) == 3


def test_the_callers_settings_change_nothing(shop: Shop) -> None:
    shop.connection.execute(
        f"""
        create schema {shop.schema}_evil;
        create function {shop.schema}_evil.clock_timestamp() returns timestamptz
            language sql as 'select null::timestamptz';
        set search_path = {shop.schema}_evil, pg_catalog;
        set standard_conforming_strings = off;
        set extra_float_digits = -15;
        set timezone = 'Asia/Kathmandu';
        set datestyle = 'German';
        set intervalstyle = 'sql_standard';
        set default_transaction_isolation = 'serializable';
        """
    )
    task_id = shop.enqueue("'send', timeout => 1.0123456789, idempotency_key => 'k', run_at => now()")
    assert shop.enqueue("'send', timeout => 1.0123456789, idempotency_key => 'k'") == task_id
    shop.connection.execute(f"drop schema {shop.schema}_evil cascade")
    shop.connection.commit()
    assert shop.app.tasks.get(task_id).timeout == 1.0123456789


def test_ids_made_in_sql_carry_the_time_and_differ(shop: Shop) -> None:
    rows = shop.connection.execute(
        f"select {shop.schema}.new_id()::text, (extract(epoch from clock_timestamp()) * 1000)::bigint"
        " from generate_series(1, 1000)"
    ).fetchall()
    assert len({made for made, _ in rows}) == 1000
    for made, millis in rows:
        assert UUID7.fullmatch(made)
        assert 0 <= millis - int(made[:8] + made[9:13], 16) < 1000
