"""Who may do what: three roles besides the owner, who migrates. The rights themselves stand in roles.sql.

    holdfast_producer   submits, and looks at tasks and their results
    holdfast_worker     claims, settles, reaps, prunes; also what an operator does: cancel, requeue, pause, delete
    holdfast_viewer     looks

None of them can make or change a table. The secrets of leases, webhooks and tokens are shown to workers only.
"""

from __future__ import annotations

from importlib.resources import files

from holdfast.stores.postgres.statements import filled


def script(schema: str) -> str:
    """For psql, run by the owner; `schema` is quoted. Can be run again, and should be after every migration."""
    return filled(files(__package__).joinpath("roles.sql").read_text(encoding="utf-8"), schema)
