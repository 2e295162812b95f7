"""Streams of answers that end early: clients that leave, or may no longer read them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.bounds import IN_PROCESS
from tests.support.marks_in_memory import Marks

from frameledger.frames import InterruptionFrame
from frameledger_services.client import FramesUnacknowledgedError
from frameledger_services.gateway.access.guard import _RevokedError
from frameledger_services.gateway.live import event_stream
from frameledger_services.gateway.openai.answer_stream import AnswerStream
from frameledger_services.gateway.openai.answering import Answers
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.listening import Listening
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.settings import Settings

FIRST = AskedQuestion("talk", 3)


class Following:
    """An answer of which nothing comes."""

    def __init__(self, question=FIRST):
        self.question = question
        self.answer = SimpleNamespace(failure=None)
        self.is_over = self.is_closed = False
        self.interruptions = 0
        self.failure = None
        self.closed = asyncio.Event()

    def close(self):
        self.is_closed = True
        self.closed.set()

    async def next(self, within):
        return False

    async def interrupt(self, is_left):
        self.interruptions += 1
        if self.failure is not None:
            raise self.failure


class Writer:
    """Writes what no client reads."""

    def begin(self):
        return b"begin"

    def news(self):
        return b""


async def receive():
    """Of a client that stays."""
    await asyncio.Event().wait()


def interruptions_after(error):
    """How often the answer is interrupted if it cannot be sent for this reason."""

    async def send(message):
        if message["type"] == "http.response.body":
            raise error

    async def main():
        following = Following()
        listening = Listening(following, Followers(Marks()), "sha", receive, lambda: True, interrupts=True)
        stream = AnswerStream(listening, Writer())
        with pytest.raises(type(error)):
            async with asyncio.timeout(IN_PROCESS):
                await stream({"type": "http"}, receive, send)
        assert following.is_closed
        return following.interruptions

    return asyncio.run(main())


@pytest.mark.regression("gateway 33")
def test_the_answer_to_a_client_whose_token_is_revoked_is_interrupted():
    assert interruptions_after(_RevokedError()) == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OSError()])
def test_an_answer_that_the_gateway_itself_breaks_off_goes_on(error):
    assert interruptions_after(error) == 0


@pytest.mark.regression("gateway 41")
def test_the_answer_that_is_awaited_whole_is_interrupted_too_once_the_token_is_revoked(monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0)

    async def main():
        following, is_good = Following(), iter([True, False])
        listening = Listening(
            following, Followers(Marks()), "sha", receive, lambda: next(is_good), interrupts=True
        )
        async with asyncio.timeout(IN_PROCESS):
            await following.closed.wait()
        await listening.close()
        assert listening.is_refused
        return following.interruptions

    assert asyncio.run(main()) == 1


@pytest.mark.regression("fault 66")
def test_an_answer_that_cannot_be_interrupted_because_the_log_is_away_is_given_up_all_the_same():
    async def main():
        following = Following()
        following.failure = FramesUnacknowledgedError("The broker is away.", [InterruptionFrame(id="i1")])
        listening = Listening(following, Followers(Marks()), "sha", receive, lambda: True, interrupts=True)
        await listening.close(gave_up=True)
        return following.interruptions

    assert asyncio.run(main()) == 1


@pytest.mark.regression("gateway 85")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the first", "the second"])
@pytest.mark.parametrize("since", [(12, 12), (12, 15)], ids=str)
def test_a_client_that_leaves_does_not_interrupt_what_the_same_request_again_follows(since, order):
    """With two results the first request follows from the version of the first one, and its repetition from that of the
    last one, which may answer a call that was announced later."""
    questions = [AskedQuestion("talk", 21, since[0]), AskedQuestion("talk", 22, since[1])]

    def follow(_dependencies: Any, _request: Any, question: AskedQuestion) -> Any:
        return Following(question)

    async def main():
        dependencies: Any = SimpleNamespace(settings=Settings(), marks=Marks())
        write: Any = None
        answers: Answers[Any] = Answers(dependencies, follow, write)
        again, another = SimpleNamespace(sha256="same"), SimpleNamespace(sha256="other")
        request: Any = SimpleNamespace(receive=receive, scope={})
        both = [answers._listening(request, again, one) for one in questions]
        other = answers._listening(request, another, AskedQuestion("talk", 30))
        interruptions = []
        for number in order:
            await both[number].close(gave_up=True)
            interruptions.append(both[number].following.interruptions)
        await other.close()
        return interruptions

    assert asyncio.run(main()) == [0, 1]


@pytest.mark.regression("gateway 95")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the first", "the second"])
def test_a_client_that_leaves_does_not_interrupt_what_the_same_request_follows_at_another_gateway(order):
    async def main():
        marks: Any = Marks()
        gateways = [Followers(marks) for _ in range(2)]
        both = [
            Listening(Following(), one, "sha", receive, lambda: True, interrupts=True, may_be_again=True)
            for one in gateways
        ]
        interruptions = []
        for number in order:
            await both[number].close(gave_up=True)
            interruptions.append(both[number].following.interruptions)
        assert +marks.marks == {}
        return interruptions

    assert asyncio.run(main()) == [0, 1]


@pytest.mark.regression("gateway 95")
def test_an_answer_is_not_interrupted_while_the_same_request_comes_to_another_gateway():
    async def main():
        marks: Any = Marks()
        first, second = Followers(marks), Followers(marks)
        following = Following()
        listening = Listening(following, first, "sha", receive, lambda: True, interrupts=True)
        async with second.held(("talk", "sha"), is_shared=True):
            await listening.close(gave_up=True)
        return following.interruptions

    assert asyncio.run(main()) == 0
