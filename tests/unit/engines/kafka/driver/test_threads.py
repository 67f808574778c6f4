"""Threads for calls that wait."""

import subprocess
import sys
import threading

import pytest

from penstock.engines.kafka.driver.threads import DaemonThreads, in_thread


def test_calls_are_made_side_by_side_up_to_a_bound() -> None:
    threads = DaemonThreads(2, "test")
    both, go_on = threading.Barrier(3), threading.Event()

    def work(number: int) -> int:
        both.wait()
        go_on.wait()
        return number

    found = [threads.submit(work, number) for number in range(2)]
    both.wait()
    third = threads.submit(lambda: 2)
    assert not third.running()  # both threads wait
    go_on.set()
    assert [one.result() for one in (*found, third)] == [0, 1, 2]
    threads.shutdown()


def test_what_a_call_raises_is_its_result() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result()
    assert threads.submit(lambda: 1).result() == 1
    threads.shutdown()


def test_what_was_wanted_before_the_end_is_done_and_nothing_after_it() -> None:
    threads = DaemonThreads(1, "test")
    go_on = threading.Event()
    waiting, second = threads.submit(go_on.wait), threads.submit(lambda: 2)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(lambda: 3)
    go_on.set()
    assert (waiting.result(), second.result()) == (True, 2)


def test_what_waits_is_cancelled_where_that_is_asked_for() -> None:
    threads = DaemonThreads(1, "test")
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    running, second = threads.submit(work), threads.submit(lambda: 2)
    begun.wait()
    threads.shutdown(cancel_futures=True)
    assert second.cancelled()
    go_on.set()
    assert running.result() is None


async def test_a_call_is_awaited() -> None:
    assert await in_thread(max, 1, 2) == 2


def test_a_call_that_waits_for_ever_does_not_hold_up_the_end_of_the_process() -> None:
    code = """
import asyncio, threading
from penstock.engines.kafka.driver.threads import DaemonThreads, in_thread

async def main():
    begun = threading.Semaphore(0)
    def work():
        begun.release()
        threading.Event().wait()
    DaemonThreads(1, "test").submit(work)
    waiting = asyncio.ensure_future(in_thread(work))
    for _ in range(2):
        while not begun.acquire(blocking=False):
            await asyncio.sleep(0)
    waiting.cancel()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
