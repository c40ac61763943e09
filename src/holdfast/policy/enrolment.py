"""How long a worker is listed that nothing here can show to be alive (contract C6.7): one behind a dispatcher."""

from __future__ import annotations

REMOTE_KEPT_SECONDS = 3600.0
"""After it was last seen. Its leases are left alone: they expire, or do not."""
