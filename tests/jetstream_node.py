"""One NATS server of jetstream_servers.py as a process, and the keeper that ends such processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests import postgres_server

START_SECONDS = 60.0
# Every line names the processes that live now.
KEEPER = 'while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -KILL $pids; cd /; rm -rf "$0"'


class Node:
    """One server with its data, running or not."""

    def __init__(self, name: str, folder: Path, config: str, ports: Sequence[int], keeper: Keeper) -> None:
        self.name = name
        self.port, monitor = ports
        self.address = f"127.0.0.1:{self.port}"
        self.monitor = f"http://127.0.0.1:{monitor}"
        self.folder = folder
        self.paused = False
        self._keeper = keeper
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        self._config = folder / "config"
        self._config.write_text(config)
        keeper.give(folder, self._config)

    @property
    def lives(self) -> bool:
        return self._process is not None

    @property
    def answers(self) -> bool:
        """As far as we know: nobody has killed or paused it."""
        return self.lives and not self.paused

    def start(self) -> None:
        """At the same port, with the same data. Returns when clients can connect."""
        self.launch()
        self.wait_until_started()

    def launch(self) -> None:
        assert not self.lives, "it runs"
        self._process = self._keeper.started(_binary(), "-c", self._config)

    def wait_until_started(self) -> None:
        """Somebody may have one of its ports for a moment. Then it ends at once and is started again."""
        ends_at = time.monotonic() + START_SECONDS
        while not self._greets():
            assert time.monotonic() < ends_at, self._log()
            if self._process is None or self._process.poll() is not None:
                self._keeper.ended(self._process)
                self._process = self._keeper.started(_binary(), "-c", self._config)
            time.sleep(0.02)

    def kill(self) -> None:
        """Not even the server knows."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._keeper.ended(self._process)
            self._process, self.paused = None, False

    def end(self) -> None:
        """In good order: it writes down what it knows."""
        assert self._process is not None, "it does not run"
        self._process.terminate()
        self._process.wait(START_SECONDS)
        self.kill()

    def stop(self) -> None:
        """It stands still, with its connections open, until `cont`."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def cont(self) -> None:
        self._signal(signal.SIGCONT)
        self.paused = False

    def healthy(self) -> bool:
        """As far as it knows itself."""
        try:
            return bool(self.says("healthz")["status"] == "ok")
        except OSError:
            return False

    def says(self, page: str) -> dict[str, Any]:
        """A page of its monitoring, also one that says that something is wrong."""
        try:
            with urlopen(f"{self.monitor}/{page}", timeout=5) as reply:
                return dict(json.load(reply))
        except HTTPError as error:
            with error:
                return dict(json.load(error))

    def leads(self, stream: str) -> bool:
        """A server that is alone leads whatever it has."""
        return any(
            one.get("cluster", {"leader": self.name}).get("leader") == self.name
            for one in self._streams()
            if one["name"] == stream
        )

    def groups(self) -> dict[str, dict[str, Any]]:
        """What it holds together with others, and what it thinks of who leads and who follows there."""
        found = {"": self.says("jsz").get("meta_cluster")}
        for stream in self._streams():
            found[stream["name"]] = stream.get("cluster")
            for consumer in stream.get("consumer_detail") or []:
                found[f"{stream['name']} {consumer['name']}"] = consumer.get("cluster")
        return {name: known for name, known in found.items() if known is not None}

    def _streams(self) -> Iterator[dict[str, Any]]:
        for account in self.says("jsz?accounts=true&streams=true&consumers=true").get("account_details", []):
            yield from account.get("stream_detail") or []

    def _greets(self) -> bool:
        """By its name: at a port that it could not have there may be another server."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as conn, conn.makefile("rb") as lines:
                kind, _, told = lines.readline().partition(b" ")
                return kind == b"INFO" and bool(json.loads(told)["server_name"] == self.name)
        except OSError:
            return False

    def _signal(self, number: int) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def _log(self) -> str:
        log = self.folder / "log"
        return f"{self.name} does not start: {log.read_text()[-2000:] if log.exists() else 'it says nothing'}"


class Keeper:
    """Knows the processes and the folder, and ends both with the test process at the latest."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-nats-"))
        reachable = all(parent.stat().st_mode & 0o001 for parent in _binary().parents)
        self._user = postgres_server.UNPRIVILEGED if os.geteuid() == 0 and reachable else None
        self.give(self.folder)
        self._live: list[subprocess.Popen[bytes]] = []
        self._shell = self._popen(["sh", "-c", KEEPER, self.folder], subprocess.PIPE)

    def give(self, *paths: Path) -> None:
        """To the user that the servers run as."""
        if self._user is not None:
            for path in paths:
                os.chown(path, self._user, self._user)

    def started(self, *command: str | Path) -> subprocess.Popen[bytes]:
        process = self._popen(command, None)
        self._live.append(process)
        self._tell()
        return process

    def ended(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            self._live.remove(process)
            self._tell()

    def end(self) -> None:
        """All of them, and the folder."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        for process in self._live:
            process.wait(START_SECONDS)
        self._shell.wait(START_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)  # should a process have made a file while the shell removed them

    def _tell(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(str(process.pid) for process in self._live).encode() + b"\n")
        self._shell.stdin.flush()

    def _popen(self, command: Sequence[str | Path], stdin: int | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
            **postgres_server._as(self._user),
        )


def _binary() -> Path:
    return Path(sysconfig.get_path("scripts")) / "nats-server"
