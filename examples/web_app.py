"""A web server and a worker in one process, on one app: the request answers at once, the work follows.

Only the standard library. Run it, and it makes one request to itself, waits for the work, and stops.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

from holdfast import Holdfast

app = Holdfast()


@app.task(queue="reports", timeout=30)
def report(year: int) -> str:
    return f"{year}: a good year"


class Handler(BaseHTTPRequestHandler):
    """POST /reports/2026 submits; GET /reports/ID shows how far it is."""

    def do_POST(self) -> None:
        year = int(self.path.rpartition("/")[2])
        handle = report.using(idempotency_key=f"report-{year}").enqueue(year)
        self.answer(202, {"id": handle.id, "created": handle.created})

    def do_GET(self) -> None:
        task = app.tasks.get(self.path.rpartition("/")[2])
        self.answer(200, {"status": task.status, "result": task.result})

    def answer(self, status: int, body: dict[str, object]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


def main() -> None:
    worker = app.worker(queues=["reports"], concurrency=4)
    working = threading.Thread(target=worker.run)
    working.start()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    reports = f"http://127.0.0.1:{server.server_port}/reports"
    submitted = json.load(urlopen(f"{reports}/2026", data=b""))
    app.handle(submitted["id"]).result(timeout=20)
    print(json.load(urlopen(f"{reports}/{submitted['id']}")))

    server.shutdown()
    server.server_close()
    worker.stop()  # finishes what runs, gives the rest back
    working.join()
    app.close()


if __name__ == "__main__":
    main()
