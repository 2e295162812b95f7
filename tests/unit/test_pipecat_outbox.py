"""The publishing thread: which items share a frame, and the end of a recording whose broker does not answer."""

import asyncio
import errno
import threading
from uuid import UUID

import pytest
from tests.bounds import IN_PROCESS, scaled
from tests.support.pipecat_frames import LLMTextFrame

from frameledger_services.pipecat.capture import CHANGES
from frameledger_services.pipecat.captured_frame import ASSISTANT
from frameledger_services.pipecat.captured_items import CapturedItems
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.outbox import MAX_PER_PASS, Outbox


class Silent:
    """A client that publishes nothing, and is closed once `may_close` is set."""

    def __init__(self):
        self.closes, self.may_close, self.is_closed = threading.Event(), threading.Event(), False

    async def publish(self, *_, **__):
        await asyncio.Event().wait()

    async def close(self):
        self.closes.set()
        await asyncio.to_thread(self.may_close.wait)
        self.is_closed = True


@pytest.mark.regression("bridge 9")
def test_two_who_wait_for_the_end_stop_the_thread_once_and_its_client_is_closed():
    client = Silent()
    told = Mirror(known=True).changes([{"role": "user", "content": "One"}])
    outbox = Outbox("call-7", UUID(int=7), CapturedItems([(1, 10**18, CHANGES, told, None)]), lambda: client)
    outbox.start()

    async def both():
        async with asyncio.timeout(IN_PROCESS):
            later = asyncio.create_task(outbox.finish(scaled(0.2)))
            await outbox.finish(0.0)
            await asyncio.to_thread(client.closes.wait)
            await later
            client.may_close.set()
            await asyncio.to_thread(outbox._thread.join)

    asyncio.run(both())
    assert client.is_closed


@pytest.mark.regression("fault 274")
def test_without_file_descriptors_the_start_of_a_recording_fails_and_the_bot_goes_on(monkeypatch):
    """Other conversations of the process share its event loop, in which the recording starts."""

    def none_left():
        raise OSError(errno.EMFILE, "Too many open files")

    outbox = Outbox("call-7", UUID(int=7), CapturedItems(), Silent)

    async def starts():
        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            outbox.start()
        await outbox.finish(IN_PROCESS)

    asyncio.run(starts())


class Keeping:
    """A client that keeps the frames."""

    def __init__(self):
        self.texts = []

    async def publish(self, context_id, *frames, within):
        self.texts += [one.frame.text for one in frames]

    async def close(self):
        pass


@pytest.mark.parametrize(("waiting", "frames"), [(MAX_PER_PASS, MAX_PER_PASS), (MAX_PER_PASS + 1, 1)])
def test_tokens_share_a_frame_only_if_more_wait_than_are_published_at_once(waiting, frames):
    client = Keeping()
    items = CapturedItems(
        (number, number, ASSISTANT, LLMTextFrame(f"{number} "), None) for number in range(waiting)
    )
    outbox = Outbox("call-7", UUID(int=7), items, lambda: client)
    outbox.start()
    asyncio.run(outbox.finish(IN_PROCESS))
    assert len(client.texts) == frames
    assert "".join(client.texts) == "".join(f"{number} " for number in range(waiting))
