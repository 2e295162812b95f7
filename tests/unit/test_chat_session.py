"""A session of `frameledger chat` without servers: its output, and the heard text of an interruption."""

import asyncio
import io

import pytest
from rich.console import Console
from tests.bounds import IN_PROCESS
from tests.support.stored_frame import stored_frame as stored

from frameledger.frames import (
    FunctionCallFromLLM,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from frameledger_services.cli.chat.render import CUT_SHORT, REJECTED, Screen
from frameledger_services.cli.chat.session import ChatSession, CtrlC, Event, Line


class NothingGoesOn:
    """The database of a conversation in which no answer is awaited."""

    async def goes_on(self, _):
        return False, 1


class WaitsForTheClient(NothingGoesOn):
    """The database of a conversation in which `paint` and an older call wait for their client."""

    async def waiting_for_client(self, _):
        return {"older": "look", "paint-1": "paint"}


class Published:
    """The client's end of the log: what is published comes back behind what was on its way."""

    def __init__(self, events):
        self.frames = []
        self._events = events

    async def publish(self, _, *frames, wait):
        assert wait
        self.frames += frames
        for frame in frames:
            self._events.put_nowait(stored(frame))
        self._events.put_nowait(Line(None))


def test_words_that_arrive_behind_ctrl_c_are_not_printed_for_the_interruption_says_they_were_not_heard():
    async def sit():
        events: asyncio.Queue[Event] = asyncio.Queue()
        client = Published(events)
        shown = io.StringIO()
        page = Screen(Console(file=shown, width=100), "ctx")
        for one in (stored(LLMFullResponseStartFrame()), stored(LLMTextFrame(text="one")), CtrlC()):
            events.put_nowait(one)
        events.put_nowait(stored(LLMTextFrame(text=" two")))
        async with asyncio.timeout(IN_PROCESS):
            await ChatSession(NothingGoesOn(), client, "ctx", page, events, stale=False, answering=True).run()
        return client.frames, shown.getvalue()

    published, shown = asyncio.run(sit())
    assert [frame.heard_text for frame in published if isinstance(frame, InterruptionFrame)] == ["one"]
    assert shown.split("\n") == ["one", CUT_SHORT, ""]


@pytest.mark.regression("fault 292")
def test_ctrl_c_that_is_pressed_again_before_its_turn_ends_the_chat():
    async def sit():
        events: asyncio.Queue[Event] = asyncio.Queue()
        publishing = asyncio.Event()

        class NobodyAnswers:
            async def publish(self, *_, wait):
                publishing.set()
                await asyncio.Event().wait()

        page = Screen(Console(file=io.StringIO(), width=100), "ctx")
        session = ChatSession(NothingGoesOn(), NobodyAnswers(), "ctx", page, events, stale=False)
        async with asyncio.timeout(IN_PROCESS):
            session.press_ctrl_c()
            await session.run()
            events.put_nowait(Line("Hello?"))
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(session.run())
                await publishing.wait()
                session.press_ctrl_c()
                with pytest.raises(KeyboardInterrupt):
                    session.press_ctrl_c()
                running.cancel()

    asyncio.run(sit())


def test_an_answer_that_the_tables_have_already_is_shown_before_the_chat_ends_with_its_input():
    async def sit():
        events: asyncio.Queue[Event] = asyncio.Queue()
        shown = io.StringIO()

        class Ahead:
            """The tables have the end of the answer, and its words are still on their way to us."""

            async def goes_on(self, _):
                if events.empty() and not shown.getvalue():
                    events.put_nowait(stored(LLMTextFrame(text="Here it is."), 2))
                return False, 2

        page = Screen(Console(file=shown, width=100), "ctx")
        events.put_nowait(stored(LLMFullResponseStartFrame()))
        events.put_nowait(Line(None))
        async with asyncio.timeout(IN_PROCESS):
            await ChatSession(Ahead(), Published(events), "ctx", page, events, answering=True).run()
        return shown.getvalue()

    assert "Here it is." in asyncio.run(sit())


def test_a_call_that_waits_for_its_client_is_said_to_once():
    async def sit():
        events: asyncio.Queue[Event] = asyncio.Queue()
        shown = io.StringIO()
        calls = [
            FunctionCallFromLLM(function_name=name, tool_call_id=f"{name}-1", arguments={})
            for name in ("paint", "search")
        ]
        answer = (
            LLMFullResponseStartFrame(),
            FunctionCallsStartedFrame(function_calls=calls),
            LLMFullResponseEndFrame(),
        )
        result = FunctionCallResultFrame(function_name="search", tool_call_id="search-1", result=1)

        class Work(WaitsForTheClient):
            """Once it was asked, a result of the other call comes, and the input ends."""

            asked = 0

            async def goes_on(self, _):
                self.asked += 1
                if self.asked == 1:
                    events.put_nowait(stored(result))
                    events.put_nowait(Line(None))
                return False, 1

        for frame in answer:
            events.put_nowait(stored(frame))
        page = Screen(Console(file=shown, width=100), "ctx")
        async with asyncio.timeout(IN_PROCESS):
            await ChatSession(Work(), Published(events), "ctx", page, events, answering=True).run()
        return shown.getvalue()

    assert [line.strip() for line in asyncio.run(sit()).splitlines()] == [
        "paint {}",
        "search {}",
        "paint waits for the client; answer it:",
        "frameledger calls answer ctx paint-1 --result JSON",
        "search = 1",
    ]


def test_what_is_said_of_a_typed_line_begins_a_line_behind_words_that_came_before_it_was_read():
    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=80), "ctx")
    screen.show(LLMFullResponseStartFrame())
    screen.show(LLMTextFrame(text="One"))
    shown.write("And me?\n")  # the terminal's echo
    screen.show(LLMTextFrame(text=" two"))
    screen.entered()
    screen.say(REJECTED)
    assert shown.getvalue().endswith("OneAnd me?\n two\nRejected: an answer is in progress.\n")
