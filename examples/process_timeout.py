"""CPU-bound work in child processes, which really end at their timeout.

The `__main__` guard matters here: a child loads this file to find its handler.
"""

from holdfast import Holdfast, current_task
from holdfast.errors import TaskFailed

app = Holdfast()


@app.task(run_in="process", timeout=20)
def primes_below(limit: int) -> int:
    """Counts, reports how far it is, and stops early when it is asked to."""
    found = 0
    for number in range(2, limit):
        found += all(number % divisor for divisor in range(2, int(number**0.5) + 1))
        if number % 5_000 == 0:
            current_task().progress(number, limit, "counting")
            if current_task().cancel_requested:
                raise InterruptedError(f"stopped at {number}")
    return found


@app.task(run_in="process", timeout=0.5, max_attempts=1)
def endless() -> None:
    while True:
        pass


def main() -> None:
    counting = primes_below.enqueue(20_000)
    hanging = endless.enqueue()
    app.worker(concurrency=2).run(until_idle=True)

    print("primes:", counting.result(timeout=5))
    print("progress:", [event.payload["done"] for event in counting.events() if event.kind == "task.progress"])
    try:
        hanging.result(timeout=5)
    except TaskFailed as error:
        print("killed:", error.error and error.error["code"])
    app.close()


if __name__ == "__main__":
    main()
