"""Long answers to clients that stop reading within the last piece: the end of the body waits for them too."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS
from tests.support.marks_in_memory import Marks
from tests.unit.test_ag_ui_stream import Run
from tests.unit.test_openai_answer_stream import Following, Writer

from frameledger_services.gateway.ag_ui.run_stream import RunStream
from frameledger_services.gateway.line_stream import LineStream
from frameledger_services.gateway.live import protocol, timed_send
from frameledger_services.gateway.live.event_stream import EventStream
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.openai.answer_stream import AnswerStream
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.listening import Listening


class Client:
    """Takes every piece, and not the end."""

    def __init__(self):
        self.is_cut_off = asyncio.Event()
        self.scope = {"type": "http", "extensions": {protocol.EXTENSION: {"abort": self.is_cut_off.set}}}

    async def receive(self):
        await self.is_cut_off.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.body" and not message["more_body"]:
            await asyncio.Event().wait()


def lines(_):
    async def pieces():
        yield b"{}\n"

    return LineStream(pieces(), {})


def events(_):
    erased = Chunk(b"event: erased\n\n", 5, is_all=True, exists=False, erased_version=5, ended=False)
    follower = SimpleNamespace(count_end=lambda why: None, close=lambda: None)
    return EventStream(follower, erased)


def run_of_ag_ui(_):
    run = Run()
    run.is_over = True
    return RunStream(run, b"begin\n\n", lambda has_left: None)


class WholeWriter(Writer):
    """Writes an answer that is over."""

    def end(self):
        return b"end"


def answer(client):
    following = Following()
    following.is_over = True
    listening = Listening(following, Followers(Marks()), "sha", client.receive, lambda: True, interrupts=True)
    return AnswerStream(listening, WholeWriter())


@pytest.mark.regression("fault 69")
@pytest.mark.parametrize("long_answer", [lines, events, run_of_ag_ui, answer])
def test_a_client_that_does_not_take_the_end_of_an_answer_is_cut_off(monkeypatch, long_answer):
    monkeypatch.setattr(timed_send, "SEND_SECONDS", 0)

    async def main():
        client = Client()
        async with asyncio.timeout(IN_PROCESS):
            await long_answer(client)(client.scope, client.receive, client.send)
        return client.is_cut_off.is_set()

    assert asyncio.run(main())
