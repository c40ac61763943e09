"""`holdfast migrate` on PostgreSQL, as real processes: twice at once, killed half-way, beside a worker, by psql."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.stores.postgres import schema
from tests import postgres_server
from tests.acceptance.cli_driver import Cli, Started, eventually
from tests.stores import postgres_described

STEPS = [step.name for step in schema.steps()]

# What the steps of this schema wait for when they take turns (see schema.py).
TURN = "pg_advisory_lock(hashtextextended('holdfast migrates \"{}\"', 0))"


@pytest.fixture
def name() -> str:
    return postgres_server.fresh_schema()


@pytest.fixture
def url(name: str) -> str:
    return f"{postgres_server.server().url}?schema={name}"


def ask(sql: str, *values: Any) -> Any:
    return postgres_server.run_apart(lambda conn: conn.fetchval(sql, *values))


def tables(name: str) -> list[str]:
    found = ask("select array_agg(relname::text) from pg_class where relnamespace = to_regnamespace($1)", name)
    return sorted(found or [])


def waiting(what: str) -> int:
    """How many migrations stand in line with a statement like this."""
    asked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1"
    return int(ask(asked, f"%{what}%"))


class Holder:
    """Somebody else's session, in the middle of a transaction."""

    def __init__(self, sql: str) -> None:
        self.process = subprocess.Popen(
            [postgres_server.psql(), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", postgres_server.server().url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"begin; {sql}; select 'held';\n")
        self.process.stdin.flush()
        while self.process.stdout.readline().strip() != "held":
            assert self.process.poll() is None

    def let_go(self) -> None:
        self.process.communicate("rollback;\n")


def test_two_at_once_do_each_step_once(cli: Cli, name: str, url: str) -> None:
    holder = Holder(f"select {TURN.format(name)}")
    both = [cli.start("migrate", "--json", "--url", url) for _ in range(2)]
    eventually(lambda: waiting("holdfast migrates") >= 2, "two that wait for their turn")
    holder.let_go()
    outs = [said(one) for one in both]
    assert sorted(outs) == sorted([done(STEPS), done([])])
    assert ask(f"select array_agg(name order by version) from {name}.migrations") == STEPS


def done(steps: list[str]) -> str:
    return '{"up_to_date":true,"done":[' + ",".join(f'"{step}"' for step in steps) + "]}"


def said(started: Started) -> str:
    assert started.ended() == 0, started.said
    assert started.process.stdout is not None
    return started.process.stdout.read().decode().strip().replace(": ", ":").replace(", ", ",")


def test_killed_half_way_leaves_the_old_schema(cli: Cli, name: str, url: str) -> None:
    """A table of ours that somebody else is just making stops the first step in its middle."""
    ask(f"create schema {name}")
    holder = Holder(f"create table {name}.workers ()")
    migrating = cli.start("migrate", "--url", url)
    eventually(lambda: waiting("CREATE TABLE%migrations") == 1, "a migration in the middle of its first step")
    migrating.signal(signal.SIGKILL)
    migrating.ended()
    holder.let_go()
    eventually(lambda: waiting("CREATE TABLE%migrations") == 0, "its session has ended")
    assert tables(name) == []
    assert cli("migrate", "--check", "--json", "--url", url).json == {"up_to_date": False, "open": STEPS}
    assert cli("migrate", "--json", "--url", url).json == {"up_to_date": True, "done": STEPS}
    assert cli("migrate", "--check", "--url", url).code == 0


def test_a_worker_goes_on_while_its_schema_is_brought_up_to_date(cli: Cli, name: str, url: str) -> None:
    script = schema.whole_script([step for step in schema.steps() if step.version <= schema.oldest()], f'"{name}"')
    run_psql(script)
    for number in range(20):
        assert cli("--app", "shop:app", "--url", url, "enqueue", "shop.add", str(number)).code == 0
    worker = cli.start("--app", "shop:app", "--url", url, "worker", "--concurrency", "1")
    eventually(lambda: completed(name) >= 3, "the worker is at work")
    assert cli.process("migrate", "--url", url).code == 0
    assert cli("--app", "shop:app", "--url", url, "enqueue", "shop.add", "7").code == 0
    eventually(lambda: completed(name) == 21, "everything is done")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert cli("migrate", "--check", "--url", url).code == 0


def completed(name: str) -> int:
    return int(ask(f"select count(*) from {name}.tasks where status = 'completed'"))


def test_a_worker_leaves_when_its_schema_becomes_one_that_it_does_not_know(cli: Cli, name: str, url: str) -> None:
    worker = cli.start("--app", "shop:app", "--url", url, "worker")
    worker.wait_for("worker.started")
    ask(f"insert into {name}.migrations (version, name) values (9999, 'from the future')")
    assert worker.ended() == 5
    assert "install the newer Holdfast" in "\n".join(worker.said)


def run_psql(script: str, database: str | None = None) -> None:
    ran = subprocess.run(
        [postgres_server.psql(), "-Xq1", "-v", "ON_ERROR_STOP=1", "-d", database or postgres_server.server().url],
        input=script,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_sql_can_be_run_by_psql_whatever_its_search_path(cli: Cli, name: str, url: str) -> None:
    script = cli("migrate", "--sql", "--url", url).out
    hostile = (
        f"create schema {name}_evil; create domain {name}_evil.text as integer;"
        f"create function {name}_evil.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz';"
        f"set local search_path = {name}_evil, pg_catalog;\n"
    )
    after = f"\ndo $$ begin assert current_setting('search_path') = '{name}_evil, pg_catalog'; end $$;"
    run_psql(f"{hostile}{script}{after} drop schema {name}_evil cascade")
    assert cli("migrate", "--check", "--url", url).code == 0
    assert cli("migrate", "--sql", "--url", url).out == ""
    made, by_hand = postgres_server.fresh_schema(), name
    assert cli("migrate", "--url", f"{postgres_server.server().url}?schema={made}").code == 0
    assert described(made) == described(by_hand)


def described(name: str) -> str:
    return postgres_server.run_apart(lambda conn: postgres_described.described(conn, name))


def test_the_sql_is_shown_for_a_database_that_does_not_exist_yet(cli: Cli, tmp_path: Path) -> None:
    server = postgres_server.server().url.rpartition("/")[0]
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    whole = cli("migrate", "--sql", "--url", f"{server}/no_such_database").out
    assert whole.count("CREATE TABLE") > 5
    assert cli("migrate", "--sql", "--from", "0", "--url", nowhere).out == whole
    assert cli("migrate", "--sql", "--from", str(schema.newest()), "--url", nowhere).out == ""
    assert cli("migrate", "--sql", "--url", nowhere).code == 5


def test_from_goes_with_sql_only(cli: Cli) -> None:
    assert cli.app("migrate", "--from", "1").code == 2
    assert cli.app("migrate", "--check", "--sql").code == 2
    assert cli.app("migrate", "--roles").code == 4


def test_the_sql_of_a_sqlite_file_does_the_same_by_hand(cli: Cli) -> None:
    import sqlite3

    script = cli.app("migrate", "--sql").out
    with sqlite3.connect(cli.folder / "shop.db") as conn:
        conn.executescript(script)
    conn.close()
    assert cli.app("migrate", "--check").code == 0
    assert cli.enqueue("shop.add", "1")
    assert cli.app("migrate", "--sql", "--from", "0").out == script
