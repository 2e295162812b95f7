"""Following an answer while the database is unreachable at times."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from tests.bounds import IN_PROCESS
from tests.support.marks_in_memory import SlowMarks
from tests.support.turns import turns

from frameledger.frames import (
    ErrorFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    encode_frame,
)
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.openai.failures import problem_of
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.listening import Listening
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.problems import KINDS
from frameledger_services.settings import Settings
from frameledger_services.store import answered_requests, client_calls, client_requests, conversation_state
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.following import StreamHead
from frameledger_services.store.wanted_frames import PagedFrame

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CALL = ClientCall("c", "paint", "{}", 3, True, False, None, None)
CALLING = Chunk(
    b"",
    5,
    is_all=True,
    exists=True,
    erased_version=None,
    ended=False,
    head=StreamHead(5, "calling", False, None),
)


class Database:
    """Is away once, and then has a conversation in which its client's call waits."""

    def __init__(self):
        self.is_away = True

    async def read(self, function, *_):
        if self.is_away:
            self.is_away = False
            raise DatabaseUnavailableError("no connection was free")
        return {conversation_state.goes_on: (False, 5), client_calls.left_since: [CALL]}[function]


class Hub:
    """Its follower is given one chunk, and then nothing for as long as it waits."""

    def __init__(self, chunk=CALLING):
        self.chunk = chunk

    def follow(self, *_):
        chunks = [self.chunk]

        async def next_one(within):
            if chunks:
                return chunks.pop()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.Event().wait()
            return None

        return SimpleNamespace(next=next_one, close=lambda: None, is_closed=False)


@pytest.mark.regression("gateway 3")
def test_an_answer_whose_end_cannot_be_read_for_a_moment_is_not_broken_off():
    async def follow():
        following = Following(
            Dependencies(Settings(), None, Database(), Hub(), asyncio.Event()), AskedQuestion("talk", 3)
        )
        async with asyncio.timeout(IN_PROCESS):
            while not following.is_over:
                # A heartbeat comes later than the next look.
                await following.next(2 * IN_PROCESS)
        return following.calls

    assert asyncio.run(follow()) == [CALL]


@pytest.mark.regression("gateway 53")
def test_an_answer_before_the_next_question_whose_end_cannot_be_read_for_a_moment_is_not_broken_off():
    class WithCall(Database):
        async def read(self, function, *given):
            await super().read(conversation_state.goes_on)
            assert (function, given) == (client_calls.left_at, ("talk", 3, 5))
            return [CALL]

    async def follow():
        following = Following(
            Dependencies(Settings(), None, WithCall(), Hub(), asyncio.Event()),
            AskedQuestion("talk", 3),
            until=5,
        )
        async with asyncio.timeout(IN_PROCESS):
            while not following.is_over:
                # A heartbeat comes later than the next look.
                await following.next(2 * IN_PROCESS)
        return following.calls

    assert asyncio.run(follow()) == [CALL]


@pytest.mark.regression("gateway 123")
@pytest.mark.parametrize("before", range(4))
def test_calls_that_another_client_answers_while_an_end_is_read_are_not_left_out_of_an_answer_that_ends(
    before,
):
    class AnsweredMeanwhile:
        """Another client answers the call after so many reads: the conversation goes on."""

        reads = 0

        async def read(self, function, *_):
            is_answered = self.reads >= before
            self.reads += 1
            return {
                conversation_state.goes_on: (True, 6) if is_answered else (False, 5),
                client_calls.left_since: [] if is_answered else [CALL],
                conversation_state.has_running_calls: False,
            }[function]

    async def follow():
        dependencies = Dependencies(Settings(), None, AnsweredMeanwhile(), Hub(), asyncio.Event())
        following = Following(dependencies, AskedQuestion("talk", 3))
        await following.next(IN_PROCESS)
        return following.is_over, following.calls

    assert asyncio.run(follow()) in [(True, [CALL]), (False, [])]


def stored(version, frame, run_id=None):
    """A frame as followers get it."""
    return PagedFrame(
        *(version, uuid4(), frame.type, "applied", None, NOW, None, None, run_id, None, None, None, 0, 0, 0),
        encode_frame(frame),
    )


def answered(version, text, run_id, context_version):
    frames = (
        LLMFullResponseStartFrame(run_id=run_id, context_version=context_version),
        LLMTextFrame(text=text, run_id=run_id),
        LLMFullResponseEndFrame(run_id=run_id, finish_reason="stop"),
    )
    return [stored(version + number, frame, run_id) for number, frame in enumerate(frames)]


@pytest.mark.regression("gateway 12")
@pytest.mark.parametrize("is_away", [False, True])
def test_an_answer_that_is_read_late_has_nothing_of_the_next_ones(is_away):
    """Its client reads slowly, and somebody else has asked when it is read to its end. Where the database cannot say
    so, what comes is passed on as before."""
    chunk = Chunk(
        b"",
        10,
        is_all=True,
        exists=True,
        erased_version=None,
        ended=False,
        frames=[*answered(4, "Mine.", "r1", 3), *answered(8, "Another.", "r2", 7)],
        head=StreamHead(10, "quiet", False, None),
    )

    class Elsewhere(Database):
        async def read(self, function, *given):
            if function is client_calls.left_at:
                return []
            assert (function, given) == (answered_requests.first_beyond, ("talk", 3))
            if self.is_away:
                raise DatabaseUnavailableError("no connection was free")
            return 7

    async def follow():
        database = Elsewhere()
        database.is_away = is_away
        following = Following(
            Dependencies(Settings(), None, database, Hub(chunk), asyncio.Event()), AskedQuestion("talk", 3)
        )
        await following.next(IN_PROCESS)
        return following.is_over, following.answer.text

    assert asyncio.run(follow()) == (True, "Mine.\n\nAnother." if is_away else "Mine.")


@pytest.mark.regression("gateway 40")
@pytest.mark.parametrize("is_interrupted", [True, False], ids=["behind an input", "behind calls"])
def test_an_answer_fails_whose_next_run_fails_before_it_begins(is_interrupted):
    """The run of an input that interrupts goes on with the answer, as the one with the results of calls does."""
    *begun, end = answered(4, "Mine.", "r1", 3)
    error = stored(8, ErrorFrame(run_id="r2", fatal=True, code="no_worker", message="Nobody."), "r2")
    about = {"is_all": True, "exists": True, "erased_version": None, "ended": False}
    head = StreamHead(8, "quiet", False, None)
    chunk = Chunk(b"", 8, **about, frames=[*begun, *([] if is_interrupted else [end]), error], head=head)

    class NothingBeyond(Database):
        async def read(self, function, *_):
            assert function is answered_requests.first_beyond

    async def follow():
        dependencies = Dependencies(Settings(), None, NothingBeyond(), Hub(chunk), asyncio.Event())
        following = Following(dependencies, AskedQuestion("talk", 3))
        await following.next(IN_PROCESS)
        return following.is_over, following.answer.failure

    is_over, failure = asyncio.run(follow())
    assert is_over
    assert failure is not None
    assert failure.code == "no_worker"


@pytest.mark.regression("gateway 44")
def test_whose_conversation_is_erased_is_not_told_to_try_again():
    """OpenAI's clients try again after a 5xx: that would write to the conversation what was erased."""
    about = {"is_all": True, "exists": False, "ended": False}
    chunk = Chunk(b"", 9, **about, erased_version=9)

    async def follow():
        following = Following(
            Dependencies(Settings(), None, Database(), Hub(chunk), asyncio.Event()), AskedQuestion("talk", 3)
        )
        await following.next(IN_PROCESS)
        return following

    following = asyncio.run(follow())
    assert following.is_over
    assert following.answer.failure is not None
    problem = problem_of(following.answer.failure)
    assert (problem.word, KINDS[problem.word].status) == ("erased", 410)


@pytest.mark.regression("gateway 127")
def test_a_request_that_comes_again_while_it_is_read_whether_its_answer_goes_on_is_not_interrupted():
    """Its client has left, and repeats it."""

    class GoesOn:
        async def read(self, function, *_):
            await turns(1)
            return {conversation_state.goes_on: (True, 5), client_requests.has_another_asked: False}[function]

    async def leave(after):
        published = []

        async def publish(*frames, **_):
            published.append(frames)

        client: Any = SimpleNamespace(publish=publish)
        dependencies = Dependencies(Settings(), client, GoesOn(), Hub(), asyncio.Event())
        followers = Followers(SlowMarks())
        listening = Listening(
            *(Following(dependencies, AskedQuestion("talk", 3)), followers, "sha"),
            asyncio.Event().wait,
            lambda: True,
            interrupts=True,
        )
        listening.is_gone = True
        leaving = asyncio.create_task(listening.close())
        await turns(after)
        before = len(published)
        async with followers.held(("talk", "sha"), is_shared=True):
            await leaving
        return before, len(published)

    found = [asyncio.run(leave(after)) for after in range(12)]
    assert found[0] == (0, 0)
    assert found[-1] == (1, 1)
    assert all(before == published for before, published in found), found
