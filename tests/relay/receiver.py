"""A real HTTP server on loopback that receives webhooks: honest by default, hostile on the paths that say so."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

ENDLESS_BYTES = 64 << 20


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Paths: /ok and all others 200; /500, /410, … that status; /hang, /slow, /endless, /reset, …"""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], int] = lambda _request: 200
        self.headers: dict[str, str] = {}
        self.released = threading.Event()
        self.sent_bytes = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.path, dict(self.headers), body)
                receiver.requests.append(request)
                receiver.serve(self, request)

            def log_message(self, *_: object) -> None: ...

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """The client went away: that is what these tests are about."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.port = int(self._server.server_address[1])

    def url(self, path: str = "/ok", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def use_tls(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        word = request.path.strip("/")
        hostile = getattr(self, f"_{word}", None)
        if hostile is not None:
            hostile(handler)
        else:
            self._status(handler, int(word) if word.isdecimal() else self.answer(request))

    def _status(self, handler: BaseHTTPRequestHandler, status: int) -> None:
        body = b"\x1b[31mno\x00" if status >= 300 else b"" if status == 204 else b"thanks"
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **self.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.released.wait(60)

    def _slow(self, handler: BaseHTTPRequestHandler) -> None:
        """The status comes at once, the body never ends."""
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"a")
        self.released.wait(60)

    def _endless(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500)
        handler.send_header("Content-Length", str(ENDLESS_BYTES))
        handler.end_headers()
        while self.sent_bytes < ENDLESS_BYTES:
            handler.wfile.write(b"x" * 65536)
            self.sent_bytes += 65536

    def _redirect(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", "/ok")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _reset(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    def _nonsense(self, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-nonsense\r\n" * 10)
        handler.close_connection = True

    def _headers(self, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 1_000_000)
        handler.close_connection = True
