"""Which tasks of a submit are new, and what the others are answered with (contract C4.2).

A known id is a repeated submit: the same answer again, or a refusal if its content differs. A known idempotency key is
the existing task's, unless that has another name. Within one batch the first of its kind counts as known. Where the key
of one task of a workflow is known, so is the workflow: nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.model.task import NewTask, Submitted
from holdfast.policy import refusals, workflow

Lookup = Callable[[str], NewTask | None]
"""A stored task as it was submitted, by id or by key."""


def admitted(tasks: Sequence[NewTask], *, by_id: Lookup, by_key: Lookup) -> tuple[list[Submitted], list[NewTask]]:
    """The answers and the tasks to be stored; a refusal of one is raised and refuses all."""
    workflow.check(tasks)
    known_runs = _known_runs(tasks, by_id, by_key)
    new_ids: dict[str, NewTask] = {}
    new_keys: dict[str, NewTask] = {}
    answers = []
    for new in tasks:
        known = by_id(new.id) or new_ids.get(new.id)
        if known is not None:
            if known.content != new.content:
                raise refusals.other_content(new.id)
            answers.append(Submitted(new.id, created=True))
            continue
        holder = _holder(new, by_key, new_keys)
        if holder is not None:
            answers.append(Submitted(holder.id, created=False))
        elif new.run_id in known_runs:
            answers.append(Submitted(new.id, created=False))
        else:
            if new.idempotency_key is not None:
                new_keys[new.idempotency_key] = new
            new_ids[new.id] = new
            answers.append(Submitted(new.id, created=True))
    _check_whole(new_ids)
    return answers, list(new_ids.values())


def _check_whole(new_ids: Mapping[str, NewTask]) -> None:
    """A workflow is stored at once: a task that is known may have ended, and would never tell a new one."""
    for new in new_ids.values():
        for parent in new.parents:
            if parent not in new_ids:
                raise refusals.known_parent(new.id, parent)


def _holder(new: NewTask, by_key: Lookup, new_keys: dict[str, NewTask]) -> NewTask | None:
    key = new.idempotency_key
    holder = None if key is None else by_key(key) or new_keys.get(key)
    if key is not None and holder is not None and holder.name != new.name:
        raise refusals.key_conflict(key, holder.id, holder.name, new.name)
    return holder


def _known_runs(tasks: Sequence[NewTask], by_id: Lookup, by_key: Lookup) -> set[str | None]:
    """Of the workflows in this batch, those of which a key is taken."""
    linked = {new.run_id for new in tasks if new.parents}
    taken: set[str | None] = set()
    keys: dict[str, NewTask] = {}
    for new in tasks if linked else ():
        key = new.idempotency_key
        if key is not None and new.run_id in linked and by_id(new.id) is None:
            if (by_key(key) or keys.get(key, new)).id != new.id:
                taken.add(new.run_id)
            keys.setdefault(key, new)
    return taken
