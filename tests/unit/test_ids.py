"""Task ids, tokens, nonces."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import uuid

from hypothesis import given
from hypothesis import strategies as st

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK

FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@given(st.integers(0, 300))
def test_task_ids_are_uuids_of_version_seven(count: int) -> None:
    made = ids.task_ids(count)
    assert len(made) == count
    for text in made:
        assert FORM.fullmatch(text)
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_task_ids_ascend_within_and_across_calls() -> None:
    made = [one for count in (1, 500, 1, 3) for one in ids.task_ids(count)] + [ids.task_id()]
    assert made == sorted(set(made))


def test_task_ids_carry_the_time() -> None:
    before = SYSTEM_CLOCK.micros() // 1000
    milliseconds = int(ids.task_id().replace("-", "")[:12], 16)
    # Ids made in one go run ahead of the clock by a 4096th of a millisecond each.
    assert before <= milliseconds <= SYSTEM_CLOCK.micros() // 1000 + 1000


def test_task_ids_of_many_threads_are_unique() -> None:
    made: list[list[str]] = []
    threads = [threading.Thread(target=lambda: made.append(ids.task_ids(500))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for batch in made for one in batch}) == 8 * 500
    assert all(batch == sorted(batch) for batch in made)


@given(st.integers(0, 300))
def test_tokens_are_uuids_of_version_four(count: int) -> None:
    made = ids.tokens(count)
    assert len(set(made)) == count
    for text in made:
        assert FORM.fullmatch(text)
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_every_free_bit_of_a_token_varies() -> None:
    numbers = [uuid.UUID(text).int for text in ids.tokens(500)]
    ever_set, always_set = 0, ~0
    for number in numbers:
        ever_set |= number
        always_set &= number
    assert (ever_set & ~always_set).bit_count() == 122


def test_a_nonce_is_short_and_new() -> None:
    made = {ids.nonce() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"[0-9a-f]{10}", one) for one in made)


FORK = """
import os
from holdfast import ids
ids.JITTER.seed(1)
child = os.fork()
os.write(1, f"{ids.task_id()} {ids.token()} {ids.nonce()} {ids.JITTER.random()} ".encode())
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_child_draws_other_ids_and_jitter() -> None:
    """In a process of its own: to fork one that has threads is an error of its own in later Pythons."""
    printed = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True).stdout
    drawn = printed.split()
    assert len(drawn) == len(set(drawn)) == 8


FORK_WHILE_DRAWING = """
import os, threading
from holdfast import ids
held, enough = threading.Event(), threading.Event()
def draw():
    with ids._lock:
        held.set()
        enough.wait()
threading.Thread(target=draw).start()
held.wait()
child = os.fork()
if child == 0:
    ids.task_id()
    os._exit(0)
print(os.waitpid(child, 0)[1])
enough.set()
"""


def test_a_child_forked_while_another_thread_draws_an_id_can_draw_its_own() -> None:
    command = [sys.executable, "-c", FORK_WHILE_DRAWING]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout == "0\n"
