"""The servers that figures are taken on: PostgreSQL, NATS and Redis, fresh, in folders of their own.

They are gone with this process. PostgreSQL and NATS come from the wheels that the tests use, with the settings of a
small production server: nothing that makes them faster than durable. Redis is the system's own and keeps an append-only
file, synced every second, as is usual.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from tests import jetstream_servers
from tests.postgres_server import started

POSTGRES = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "log_min_messages": "fatal",
}
START_SECONDS = 10.0


@cache
def postgres() -> str:
    """The URL of its one database."""
    return started(POSTGRES).url


def nats(*, cluster: bool) -> jetstream_servers.Endpoint:
    """One server, or three that are one cluster."""
    return jetstream_servers.cluster() if cluster else jetstream_servers.single()


@cache
def redis() -> str | None:
    """Its URL; None where no redis-server is installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        return None
    folder, port = tempfile.mkdtemp(prefix="holdfast-redis-"), _free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "everysec"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    atexit.register(_stop, server, Path(folder))
    _wait_for(port)
    return f"redis://127.0.0.1:{port}/0"


def _stop(server: subprocess.Popen[bytes], folder: Path) -> None:
    server.terminate()
    server.wait(START_SECONDS)
    shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    given_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > given_up_at:
                raise
            time.sleep(0.02)
        else:
            return
