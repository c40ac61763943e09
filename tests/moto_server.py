"""A real SQS endpoint for the tests: moto over HTTP, in a process of its own, started when first asked for."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from functools import cache
from typing import Any

from holdfast import ids

START_SECONDS = 60.0
ACCOUNT = "123456789012"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Server:
    """Can be stopped, and started again at the same port, empty."""

    def __init__(self) -> None:
        os.environ.update(CREDENTIALS)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> Any:
        import boto3

        return boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{self.port}")


class Queue:
    """A fresh queue on a server, and what tests do with it."""

    def __init__(self, server: Server, name: str | None = None) -> None:
        self.name = name or f"q-{ids.nonce()}"
        self.url = f"sqs+http://127.0.0.1:{server.port}/{ACCOUNT}/{self.name}"
        self.client = server.client()
        self._queue_url = self.client.create_queue(QueueName=self.name)["QueueUrl"]

    def send(self, body: str) -> None:
        self.client.send_message(QueueUrl=self._queue_url, MessageBody=body)

    def receive(self, *, visibility: int = 0) -> list[str]:
        """Bodies of what is visible; left visible, unless said otherwise."""
        said = self.client.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=10, VisibilityTimeout=visibility
        )
        return [message["Body"] for message in said.get("Messages", [])]

    def counts(self) -> tuple[int, int]:
        """How many messages are visible, and how many in somebody's hands."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        said = self.client.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=names)["Attributes"]
        return int(said[names[0]]), int(said[names[1]])

    def close(self) -> None:
        self.client.close()


@cache
def server() -> Server:
    """Shared by the tests of this process, which make queues of their own and never stop it."""
    made = Server()
    atexit.register(made.stop)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < ends_at, "the server did not start"
            time.sleep(0.05)
