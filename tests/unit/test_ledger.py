"""The books of a transport: which message is kept, extended, deleted."""

from __future__ import annotations

from holdfast.wakeups.ledger import Ledger


def test_a_message_is_kept_while_its_task_runs_here_and_done_when_it_is_settled() -> None:
    ledger = Ledger()
    ledger.arrived("a", "r1", until=120)
    assert not ledger.answered(ledger.asking(), ["a"], short=True)
    assert [message.receipt for message in ledger.ending(before=121, now=0)] == ["r1"]
    assert not ledger.has_done
    assert ledger.settled("a")
    assert ledger.take_done() == ["r1"]
    assert ledger.take_done() == []


def test_a_message_whose_task_was_not_to_be_had_is_done_after_a_short_claim() -> None:
    ledger = Ledger()
    ledger.arrived("a", "r1", until=120)
    assert not ledger.answered(ledger.asking(), ["b"], short=False)
    assert ledger.waiting == 1
    assert ledger.answered(ledger.asking(), [], short=True)
    assert ledger.take_done() == ["r1"]


def test_a_claim_that_was_under_way_when_the_message_came_decides_nothing() -> None:
    """1. A claim is asked. 2. The message comes. 3. The claim is answered: it may have looked before."""
    ledger = Ledger()
    asked = ledger.asking()
    ledger.arrived("a", "r1", until=120)
    assert not ledger.answered(asked, [], short=True)
    assert ledger.waiting == 1


def test_a_claim_that_was_under_way_and_got_the_task_holds_the_message() -> None:
    ledger = Ledger()
    asked = ledger.asking()
    ledger.arrived("a", "r1", until=120)
    ledger.answered(asked, ["a"], short=True)
    assert ledger.waiting == 0
    ledger.settled("a")
    assert ledger.take_done() == ["r1"]


def test_a_repetition_for_a_task_that_runs_here_is_held_with_it() -> None:
    ledger = Ledger()
    ledger.answered(ledger.asking(), ["a"], short=True)
    ledger.arrived("a", "r1", until=120)
    ledger.arrived("a", "r2", until=120)
    ledger.answered(ledger.asking(), [], short=True)
    assert not ledger.has_done
    ledger.settled("a")
    assert sorted(ledger.take_done()) == ["r1", "r2"]


def test_a_message_that_waits_too_long_is_left_to_others() -> None:
    ledger = Ledger()
    ledger.arrived("a", "r1", until=120)
    assert ledger.ending(before=1000, now=120) == []
    assert ledger.waiting == 0
    assert ledger.give_up() == []


def test_what_is_undecided_at_the_end_is_given_up() -> None:
    ledger = Ledger()
    ledger.arrived("a", "r1", until=120)
    assert ledger.give_up() == ["r1"]
    assert ledger.waiting == 0


def test_a_settle_of_a_task_without_messages_is_nothing() -> None:
    ledger = Ledger()
    assert not ledger.settled("a")
    assert not ledger.has_done
