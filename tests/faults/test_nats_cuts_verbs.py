"""A lost acknowledgement is normal on NATS too: every verb, cut before and after, is repeated and has happened once."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.task import Submitted, TaskStatus
from holdfast.model.token import NewToken, Scope
from holdfast.model.transition import Settled
from holdfast.stores.nats.wire import BATCH_MOST
from holdfast.testing.conformance.subject import worker_info
from tests import jetstream_servers
from tests.faults import test_cuts_verbs as verbs
from tests.faults.checks import all_tasks, check_whole
from tests.faults.nats_support import staged
from tests.faults.test_cuts_verbs import Scene, Verb, cut_again_and_again
from tests.nats_link import NatsProxy, Publish
from tests.stores.postgres_support import new_task, request

ROUNDS = 4
SOAK_ROUNDS = 100
MESSAGES = {"submit_with_keys": 9, "claim_settle_and_follow_up": 11}
"""Of the step, at least."""
STEP_BYTES = 3600
"""Some more than the step has."""
PACK_COMMITS = 5
"""Packed, unpacked in three parts, revealed."""

NOT_HERE = (verbs.submit_a_large_batch, verbs.evict, verbs.enroll_and_leave, verbs.settle_a_mixture)
"""What asks for evidence of life, and what is special on PostgreSQL."""


async def settle_a_mixture(scene: Scene) -> None:
    """All in one step."""
    await scene.settles([Completed(), Failed(ErrorInfo("no")), Completed()], "completed", "queued", "completed")


async def enroll_and_leave(scene: Scene) -> None:
    worker = worker_info("worker-1")
    await scene.through(lambda: scene.store.enroll(worker))
    assert [info.id for info in await scene.direct.workers()] == [worker.id]
    await scene.through(lambda: scene.store.leave(worker.id))
    assert await scene.direct.workers() == []


async def record_a_step(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    step = await scene.through(lambda: scene.store.record_step(claim.lease, "first", "1"))
    assert (step.name, step.result) == ("first", "1")
    assert await scene.direct.steps(claim.task_id) == [step]


async def limit(scene: Scene) -> None:
    told = await scene.through(lambda: scene.store.limit("limited", {"max_running": 3}))
    assert told.max_running == 3
    assert [queue.limits for queue in await scene.direct.queues() if queue.name == "limited"] == [told]


async def add_and_revoke_a_token(scene: Scene) -> None:
    new = NewToken(id=ids.token(), name="a", scopes=(Scope.READ,), digest="d", lifetime_seconds=None)
    token = await scene.through(lambda: scene.store.add_token(new))
    assert await scene.direct.token(new.id) == token
    assert await scene.through(lambda: scene.store.revoke_token(new.id))
    found = await scene.direct.token(new.id)
    assert found is not None
    assert found.revoked_at is not None


VERBS = [
    *(verb for verb in verbs.VERBS if verb not in NOT_HERE),
    settle_a_mixture,
    enroll_and_leave,
    record_a_step,
    limit,
    add_and_revoke_a_token,
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_whose_acknowledgement_is_lost_has_happened_once(verb: Verb) -> None:
    asyncio.run(cut_again_and_again(verb, ROUNDS, staged))


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_verbs_cut_hundreds_of_times_on_a_cluster_have_happened_once(verb: Verb) -> None:
    asyncio.run(cut_again_and_again(verb, SOAK_ROUNDS, partial(staged, jetstream_servers.cluster)))


# In the middle of an atomic step


async def claim_settle_and_follow_up(scene: Scene) -> None:
    """Eleven messages: two ends and the places they leave, a sheet, what follows, the key, the counts, a bulletin."""
    first, second = await scene.claimed(2)
    next_one = new_task(idempotency_key=ids.token(), queue=ids.token_hex(4))
    ends = [Settlement(first.lease, Completed(), follow_ups=(next_one,)), Settlement(second.lease, Completed())]
    told = await scene.through(lambda: scene.store.settle(ends))
    assert told == [Settled(claim.task_id, 1, TaskStatus.COMPLETED) for claim in (first, second)]
    scene.acknowledged.add(next_one.id)


async def submit_with_keys(scene: Scene) -> None:
    tasks = [new_task(idempotency_key=ids.token()) for _ in range(3)]
    told = await scene.through(lambda: scene.store.submit(tasks))
    assert told == [Submitted(new.id, created=True) for new in tasks]
    scene.acknowledged |= {new.id for new in tasks}


def of_a_batch(publish: Publish) -> bool:
    return b"\r\nNats-Batch-Id:" in publish.headers


@pytest.mark.parametrize("verb", [submit_with_keys, claim_settle_and_follow_up], ids=lambda verb: verb.__name__)
def test_a_step_that_is_cut_after_any_of_its_messages_is_whole_or_nothing(verb: Verb) -> None:
    """The connection ends before, or right after, its first message, its second, and so on."""

    async def cut_everywhere() -> None:
        async with staged() as scene:
            assert isinstance(scene.proxy, NatsProxy)
            scene.proxy.at = of_a_batch
            for number in range(MESSAGES[verb.__name__]):
                for scene.cut in ("before", "after"):
                    scene.skip = number
                    await verb(scene)
                    await verbs.settle_what_is_left(scene)
            await check_whole(scene.direct, scene.acknowledged)

    asyncio.run(cut_everywhere())


@pytest.mark.soak
def test_a_step_that_is_cut_at_any_byte_is_whole_or_nothing() -> None:
    """Also inside of a message's headers, and between the last byte and the line's end."""

    async def cut_everywhere() -> None:
        async with staged() as scene:
            assert isinstance(scene.proxy, NatsProxy)
            for count in range(1, STEP_BYTES, 61):
                tasks = [new_task(idempotency_key=ids.token()) for _ in range(3)]
                scene.proxy.arm_bytes(count)
                with contextlib.suppress(StoreUnavailable):
                    await scene.store.submit(tasks)
                there = [await scene.direct.get(new.id) for new in tasks]
                assert len({task is None for task in there}) == 1, count
                assert await scene.store.submit(tasks) == [Submitted(new.id, created=True) for new in tasks]
                scene.acknowledged |= {new.id for new in tasks}
            assert scene.proxy.cuts["before"] > STEP_BYTES // 61 // 2
            await check_whole(scene.direct, scene.acknowledged)

    asyncio.run(cut_everywhere())


@pytest.mark.soak
def test_a_submit_beyond_one_step_that_is_cut_anywhere_is_made_once() -> None:
    """Packed, unpacked in parts, revealed, swept: cut before and after each (packs.py), and asked for again."""

    async def cut_everywhere() -> None:
        async with staged() as scene:
            for skip in range(PACK_COMMITS):
                for scene.cut in ("before", "after"):
                    scene.skip = skip
                    tasks = [new_task() for _ in range(BATCH_MOST // 2 + 1)]
                    told = await scene.through(lambda tasks=tasks: scene.store.submit(tasks))  # type: ignore[misc]
                    assert told == [Submitted(new.id, created=True) for new in tasks]
                    scene.acknowledged |= {new.id for new in tasks}
            claimed = 0
            while claims := (await scene.direct.claim(request(limit=100))).claims:
                await scene.direct.settle([Settlement(claim.lease, Completed()) for claim in claims])
                claimed += len(claims)
            assert claimed == len(scene.acknowledged)
            assert {task.status for task in await all_tasks(scene.direct)} == {"completed"}

    asyncio.run(cut_everywhere())
