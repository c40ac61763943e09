"""A real PgBouncer in front of the tests' PostgreSQL: started when first asked for, stopped with the test process.

Debian's package has it (`pgbouncer`); tests that need one are skipped where there is none. It refuses to run as root,
so root drops to an unprivileged user id here, as for the server behind it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tests import postgres_server

BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MISSING = "there is no pgbouncer on this machine; Debian's package of that name has it"

CONFIG = """
[databases]
* = {behind}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 500
ignore_startup_parameters = {ignored}
"""

KEEPER = '"$@" & read _; kill -TERM $!; wait $!; cd /; rm -rf "$0"'


@cache
def url(mode: str) -> str:
    """The pooler in this mode that tests share."""
    return started(mode)


def started(
    mode: str, *, size: int | None = None, as_user: str | None = None, ignored: str = "extra_float_digits"
) -> str:
    """The URL of a new pooler, which is `as_user` to the server.

    Where a session is anybody's, they are few, so that clients meet each other's all the time. Else each client keeps
    one, and a handle has several.
    """
    assert BINARY is not None
    size = size or (20 if mode == "session" else 3)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bouncer-"))
    user = postgres_server.UNPRIVILEGED if os.geteuid() == 0 else None
    server, port = urlsplit(postgres_server.server().url), postgres_server._free_port()
    config = CONFIG.format(behind=_behind(server, as_user), port=port, mode=mode, size=size, ignored=ignored)
    (folder / "ini").write_text(config)
    if user is not None:
        os.chown(folder, user, user)
    process = subprocess.Popen(
        ["sh", "-c", KEEPER, folder, BINARY, "-q", folder / "ini"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
        **postgres_server._as(user),
    )
    atexit.register(postgres_server._stop, process)
    made = f"postgresql://{server.username}@127.0.0.1:{port}{server.path}"
    postgres_server._in_a_thread(lambda: postgres_server._answers(made))
    return made


def _behind(server: SplitResult, user: str | None) -> str:
    words = {
        "host": server.hostname,
        "port": server.port or 5432,
        "user": user or server.username,
        "password": server.password,
    }
    return " ".join(f"{name}={unquote(str(word))}" for name, word in words.items() if word is not None)
