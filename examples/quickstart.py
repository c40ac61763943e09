"""Declare, submit, work, look: the whole round on one SQLite file in the current folder."""

from holdfast import Fixed, Holdfast, Unrecoverable, current_task
from holdfast.errors import TaskFailed

app = Holdfast()  # HOLDFAST_URL, or else sqlite:///holdfast.db


@app.task(max_attempts=3, backoff=Fixed(0.05))
async def fetch(page: str) -> str:
    """Fails once, as networks do."""
    if current_task().failures == 0:
        raise ConnectionError(f"{page} did not answer")
    return f"the text of {page}"


@app.task
def charge(account: str, cents: int) -> dict[str, int]:
    """A plain function: it runs in a thread."""
    if account == "closed":
        raise Unrecoverable(f"account {account!r} is closed")
    return {"charged": cents}


def main() -> None:
    fetched = fetch.enqueue("index")
    charged = charge.using(priority=5, idempotency_key="order-1").enqueue("ada", 1200)
    again = charge.using(idempotency_key="order-1").enqueue("ada", 1200)
    refused = charge.enqueue("closed", 1)
    assert again.id == charged.id
    assert not again.created

    worker = app.worker()
    while fetched.task().status != "completed":  # its retry is due in 50 ms
        worker.run(until_idle=True)

    print("fetched:", fetched.result(timeout=5), "at attempt", fetched.task().attempt)
    print("charged:", charged.result(timeout=5))
    try:
        refused.result(timeout=5)
    except TaskFailed as error:
        print("refused:", error)
    print("dead letters:", [letter.id for letter in app.dlq.list()])
    print("events of the fetch:", [event.kind for event in fetched.events()])
    app.close()


if __name__ == "__main__":
    main()
