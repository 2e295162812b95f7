"""`frameledger publish` while it waits for its input."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.bounds import IN_PROCESS
from tests.support.polling import look_again

from frameledger_services.cli.publish import command


@pytest.mark.regression("journey 92")
def test_whoever_interrupts_it_does_not_wait_for_another_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    reads, comes = threading.Event(), threading.Event()

    def typed():
        reads.set()
        comes.wait()
        yield []

    async def interrupted():
        publishing = asyncio.create_task(
            command._publish("ctx-1", typed(), None, False, "test", None, 1.0, False)
        )
        while not reads.is_set():
            await look_again()
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing

    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(asyncio.run, interrupted()).result(IN_PROCESS)
        finally:
            comes.set()
