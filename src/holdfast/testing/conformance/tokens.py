"""C14.3, what a store keeps of tokens: their digests, until when they are good, that they were revoked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.token import NewToken, Scope, Token
from holdfast.policy.tokens import digest
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, present
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import Subject


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("tokens", *needs))


def new_token(number: int = 1, **fields: Any) -> NewToken:
    given = {
        "id": f"{number:016x}",
        "name": "worker of the shop",
        "scopes": (Scope.WORK, Scope.READ),
        "digest": digest(f"secret {number}"),
    }
    return NewToken(**(given | fields))


@case("C14.3")
async def a_token_is_kept_as_it_was_made(subject: Subject) -> None:
    now = subject.clock.now()
    every = tuple(Scope)
    news = [new_token(1), new_token(2, scopes=every, lifetime_seconds=90.5), new_token(3, scopes=(Scope.ADMIN,))]
    made = [await subject.store.add_token(new) for new in news]
    other = await subject.another_handle()
    for new, token in zip(news, made, strict=True):
        ends_at = None if new.lifetime_seconds is None else now + timedelta(seconds=new.lifetime_seconds)
        expected = Token(
            id=new.id,
            name=new.name,
            scopes=new.scopes,
            digest=new.digest,
            created_at=now,
            expires_at=ends_at,
            revoked_at=None,
        )
        equal(token, expected, "what was given, and when; a lifetime counts from the store's now")
        equal(await other.token(new.id), expected, "through every handle")


@case("C14.3")
async def tokens_are_listed_oldest_first(subject: Subject) -> None:
    made = []
    for number in (3, 1, 2):
        made.append(await subject.store.add_token(new_token(number)))
        subject.clock.advance(1)
    equal(await subject.store.tokens(), made, "in the order in which they were made")


@case("C14.3")
async def a_revoked_token_stays_and_says_since_when(subject: Subject) -> None:
    first, other = [await subject.store.add_token(new_token(number)) for number in (1, 2)]
    subject.clock.advance(10)
    equal(await subject.store.revoke_token(first.id), True, "it was known")
    revoked = present(await subject.store.token(first.id), "the token")
    equal(revoked.revoked_at, subject.clock.now(), "since now")
    subject.clock.advance(10)
    equal(await subject.store.revoke_token(first.id), True, "it still is")
    equal(await subject.store.tokens(), [revoked, other], "once more changes nothing; the other is as it was")


@case("C14.3")
async def a_token_made_again_after_a_lost_reply_is_the_same(subject: Subject) -> None:
    made = await subject.store.add_token(new_token(lifetime_seconds=60.0))
    subject.clock.advance(5)
    equal(await subject.store.add_token(new_token(lifetime_seconds=60.0)), made, "the first answer again")
    await subject.store.revoke_token(made.id)
    revoked = present(await subject.store.token(made.id), "the token")
    equal(await subject.store.add_token(new_token()), revoked, "making it again does not bring it back")
    equal(await subject.store.tokens(), [revoked], "there is one")


@case("C14.3")
async def many_who_make_the_same_token_at_once_get_the_same(subject: Subject) -> None:
    async def add(store: Store) -> Token:
        return await store.add_token(new_token())

    answers = await subject.race([add] * 6)
    kept = await subject.store.tokens()
    equal(answers, kept * 6, "one token")
    equal([answer for answer in answers if isinstance(answer, HoldfastError)], [], "no refusal")


@case("C14.3")
async def an_unknown_token_is_nobodys(subject: Subject) -> None:
    await subject.store.add_token(new_token())
    for token_id in (*ODD_NAMES, "", "\x00", "\ud800", f"{1:016X}x", f"{1:015x}"):
        equal(await subject.store.token(token_id), None, "there is none")
        equal(await subject.store.revoke_token(token_id), False, "nor to be revoked")
    equal([token.revoked_at for token in await subject.store.tokens()], [None], "the known one is as it was")


@case("C14.3")
async def names_of_tokens_are_only_names(subject: Subject) -> None:
    for number, name in enumerate(ODD_NAMES):
        await subject.store.add_token(new_token(number, name=name))
        subject.clock.advance(1)
    equal([token.name for token in await subject.store.tokens()], list(ODD_NAMES), "exactly as given")


@case("C14.3", needs=("durable",))
async def a_token_outlives_its_process(subject: Subject) -> None:
    made = await subject.store.add_token(new_token())
    await subject.close_handles()
    await subject.another_handle()
    equal(await subject.store.tokens(), [made], "it is still there")
