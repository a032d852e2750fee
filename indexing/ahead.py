"""Work on items in several threads, a bounded amount ahead of whoever takes the results, which come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    items: Iterator[Item],
    work: Callable[[Item], Result],
    weight: Callable[[Item], int],
    *,
    threads: int,
    most: int,
    heaviest: int,
) -> Iterator[Result]:
    """`work` on each of `items`, in their order, at most `most` items or a weight of `heaviest` ahead.

    An item that is heavier than that is worked on with nothing else ahead. What `work` raises is raised in its turn.
    Whoever stops taking results ends the work: what has not begun is not begun.
    """
    ahead: deque[tuple[Future[Result], int]] = deque()
    held = 0
    with ThreadPoolExecutor(threads, "ingest-parse") as pool:
        try:
            for item in items:
                heavy = weight(item)
                while ahead and (len(ahead) >= most or held + heavy > heaviest):
                    first, size = ahead.popleft()
                    held -= size
                    yield first.result()
                ahead.append((pool.submit(work, item), heavy))
                held += heavy
            while ahead:
                yield ahead.popleft()[0].result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
