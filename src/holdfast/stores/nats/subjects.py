"""The names of things in the stream. `<id>` is three tokens, so that ids of one time can be asked for together: of a
UUIDv7 six digits (those of four and a half hours), two more (those of a minute), and the rest. Any other id is `other`,
`-` and itself.

    <prefix>.h.<id>.0            what was submitted; also the event `task.enqueued`. Written once.
    <prefix>.h.<id>.<n>          the task's other events
    <prefix>.h.gone.-.<id>.<n>   the event that outlives its task
    <prefix>.h.sheet.-.<nonce>.<n>  events of several tasks, which were written together (sheets.py)
    <prefix>.end.<status>.<queue>.<id>    an ended task as it is
    <prefix>.idem.<key>          which task has an idempotency key
    <prefix>.step.<id>.<name>    what a step gave
    <prefix>.pack.<first id>.<n> a large submit (packs.py)
    <prefix>.claim.<claim id>    that this claim was made; for a while
    <prefix>.run.<run>.<id>.<n>  ids of tasks of a run that were submitted together, of which this is the first
    <prefix>.live.<queue>.<id>   a live task as it is; empty: it has ended
    <prefix>.r.bulletin.<n>      what a change has done to live tasks; for a while
    <prefix>.r.queue.<name>      whether a queue is paused, its limits, its rate's state
    <prefix>.r.head.<digits>     there are, or were, ended tasks whose ids begin so
    <prefix>.r.tally.<handle>    how many tasks a handle has ended, by queue and status
    <prefix>.r.left.<kind>-<id>  what the end of a task still means for others
    <prefix>.r.schedule|worker|token|pack.<name>, r.mark.<handle>

What is under `r` is followed by every replica (replica.py), and is last in every change, so that one who has seen the
stream's last message has seen all changes. The stream keeps one message per subject.
"""

from __future__ import annotations

import base64
import re

REPAIRED = "repaired"
"""The mark of a repair: what was known of the stream before may be wrong."""
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
OTHER = "other"
_HEAD, _SLOT = 6, 8


def token(text: str) -> str:
    """Any text as one token: itself where it is plain."""
    if _SAFE.fullmatch(text):
        return text
    return "=" + base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def text(token: str) -> str:
    if not token.startswith("="):
        return token
    body = token[1:]
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "surrogatepass")


class Subjects:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.all = f"{prefix}.>"
        self.replicated = f"{prefix}.r.>"
        self.lives = f"{prefix}.live.>"
        self.history = f"{prefix}.h.*.*.*.*"
        self.gone_all = f"{prefix}.h.gone.-.*.*"
        self.sheets = f"{prefix}.h.sheet.-.*.*"
        self.origin = f"{prefix}.r.origin"
        """The first message of all; it stays."""
        self.ends = f"{prefix}.end.>"
        self.tallies = f"{prefix}.r.tally.*"
        self.keys = f"{prefix}.idem.*"
        self.all_steps = f"{prefix}.step.*.*"
        self.all_packed = f"{prefix}.pack.*.*"
        self.runs = f"{prefix}.run.*.*.*"
        self.ended = f"holdfast.ended.{prefix}.>"
        """Where the server tells of ends; nothing is kept there."""
        self._live = f"{prefix}.live."
        self._history = f"{prefix}.h."

    # A task

    def spec(self, task_id: str) -> str:
        return f"{self._history}{_three(task_id)}.0"

    def event(self, task_id: str, number: int) -> str:
        return f"{self._history}{_three(task_id)}.{number}"

    def events(self, task_id: str) -> str:
        return f"{self._history}{_three(task_id)}.*"

    def gone(self, task_id: str, number: int | str) -> str:
        return f"{self._history}gone.-.{token(task_id)}.{number}"

    def sheet(self, nonce: str, number: int) -> str:
        return f"{self._history}sheet.-.{nonce}.{number}"

    def is_sheet(self, subject: str) -> bool:
        return subject.startswith(f"{self._history}sheet.")

    def live(self, queue: str, task_id: str) -> str:
        return f"{self._live}{token(queue)}.{token(task_id)}"

    def live_anywhere(self, task_id: str) -> str:
        return f"{self._live}*.{token(task_id)}"

    def end(self, status: str, queue: str, task_id: str) -> str:
        return f"{self.prefix}.end.{status}.{token(queue)}.{_three(task_id)}"

    def end_anywhere(self, task_id: str) -> str:
        return f"{self.prefix}.end.*.*.{_three(task_id)}"

    def ends_of(self, status: str = "*", queue: str | None = None, head: str = "*", slot: str = "*") -> str:
        return f"{self.prefix}.end.{status}.{'*' if queue is None else token(queue)}.{head}.{slot}.*"

    def is_home(self, subject: str) -> bool:
        return subject.startswith((self._live, f"{self.prefix}.end."))

    def is_live(self, subject: str) -> bool:
        return subject.startswith(self._live)

    def is_bulletin(self, subject: str) -> bool:
        return subject.startswith(f"{self.prefix}.r.bulletin.")

    def task_of(self, subject: str) -> str:
        """Whose place this is."""
        parts = subject.split(".")
        return text(parts[-1]) if subject.startswith(self._live) else id_of(*parts[-3:])

    def task_in_history(self, subject: str) -> str | None:
        """Whose event this is; None: of one that is gone, and it outlives it, or of several."""
        head, slot, rest, _ = subject.removeprefix(self._history).split(".")
        return None if head in ("gone", "sheet") else id_of(head, slot, rest)

    def idem(self, key: str) -> str:
        return f"{self.prefix}.idem.{token(key)}"

    def step(self, task_id: str, name: str) -> str:
        return f"{self.prefix}.step.{token(task_id)}.{token(name)}"

    def steps(self, task_id: str) -> str:
        return f"{self.prefix}.step.{token(task_id)}.*"

    def claim(self, claim_id: str) -> str:
        return f"{self.prefix}.claim.{token(claim_id)}"

    def packed(self, pack: str, number: int | str = "*") -> str:
        return f"{self.prefix}.pack.{token(pack)}.{number}"

    def alive(self, worker_id: str) -> str:
        """Outside the stream: nothing is kept there."""
        return f"holdfast.alive.{self.prefix}.{token(worker_id)}"

    # Runs

    def members(self, run_id: str) -> str:
        return f"{self.prefix}.run.{token(run_id)}.*.*"

    def born_together(self, run_id: str, first_id: str, nonce: str) -> str:
        return f"{self.prefix}.run.{token(run_id)}.{token(first_id)}.{nonce}"

    def first_of(self, subject: str) -> tuple[str, str]:
        """The run, and the first of its tasks that were submitted together."""
        parts = subject.split(".")
        return text(parts[-3]), text(parts[-2])

    # What is replicated besides

    def queue(self, name: str) -> str:
        return f"{self.prefix}.r.queue.{token(name)}"

    def head(self, head: str) -> str:
        return f"{self.prefix}.r.head.{head}"

    def tally(self, handle: str) -> str:
        return f"{self.prefix}.r.tally.{handle}"

    def mark(self, handle: str) -> str:
        return f"{self.prefix}.r.mark.{handle}"

    def bulletin(self, nonce: str, number: int) -> str:
        return f"{self.prefix}.r.bulletin.{nonce}-{number}"

    def table(self, name: str, key: str) -> str:
        return f"{self.prefix}.r.{name}.{token(key)}"


def _three(task_id: str) -> str:
    if not _UUID7.fullmatch(task_id):
        return f"{OTHER}.-.{token(task_id)}"
    return f"{task_id[:_HEAD]}.{task_id[_HEAD:_SLOT]}.{task_id[_SLOT:]}"


def head_of(task_id: str) -> str:
    return task_id[:_HEAD] if _UUID7.fullmatch(task_id) else OTHER


def id_of(head: str, slot: str, rest: str) -> str:
    return text(rest) if head == OTHER else head + slot + rest
