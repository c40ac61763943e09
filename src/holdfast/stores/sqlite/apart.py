"""Texts that live in tables of their own because they are long (rows.APART_CHARS), so that nobody rewrites them."""

from __future__ import annotations

import sqlite3

import msgspec

APART = ""
"""Stands for the parents of a task, where they live in a table of their own."""


def payload_apart(conn: sqlite3.Connection, seq: int) -> str:
    return str(conn.execute("SELECT payload FROM holdfast_payloads WHERE task = ?", (seq,)).fetchone()[0])


def result_apart(conn: sqlite3.Connection, seq: int) -> str:
    return str(conn.execute("SELECT result FROM holdfast_results WHERE task = ?", (seq,)).fetchone()[0])


def parents_of(conn: sqlite3.Connection, seq: int) -> list[str]:
    """The ids of all parents, in the order in which the task names them."""
    text = conn.execute("SELECT parents FROM holdfast_tasks WHERE seq = ?", (seq,)).fetchone()[0]
    parents: list[str] = msgspec.json.decode(parents_apart(conn, seq) if text == APART else text)
    return parents


def parents_apart(conn: sqlite3.Connection, seq: int) -> str:
    return str(conn.execute("SELECT parents FROM holdfast_parents WHERE task = ?", (seq,)).fetchone()[0])
