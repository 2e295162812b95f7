"""`FrameledgerLLMService` on the whole road: a pipeline of Pipecat's asks, and our workers answer."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.bridges.pipecat.bots import Bot, until
from tests.bridges.pipecat.recording import as_bytes, stored_bytes
from tests.bridges.pipecat.test_restored import all_of, in_sql, on_the_road, wire

from frameledger_services.inference.service import InferenceService
from frameledger_services.pipecat import FrameledgerLLMService, FrameledgerObserver
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

pytestmark = pytest.mark.servers


def script(*replies):
    return Script.model_validate({"replies": replies})


@asynccontextmanager
async def answering(settings, model):
    """An inference worker beside the pipeline."""
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(InferenceService(settings, model).run(stopping))
        yield model
        stopping.set()


class Talk:
    """A bot whose answers come from our workers."""

    def __init__(self, ledger, context, llm, speaks=False):
        self.ledger, self.llm = ledger, llm
        self.bot = Bot(speaks=speaks, context=context, service=llm)
        self.errors = []
        self.ended = 0
        llm.add_event_handler("on_after_push_frame", self._pushed)

    @classmethod
    async def made(cls, settings, context_id="call-7", tools=None, speaks=False, **options):
        ledger = FrameledgerObserver(context_id, settings)
        llm = FrameledgerLLMService(ledger, **options)
        return cls(ledger, await ledger.restore(tools=tools), llm, speaks)

    async def ask(self, text, answers=1):
        count = self.ended
        await self.bot.say(text)
        await until(lambda: self.ended >= count + answers)
        await self.bot.settle()

    def _pushed(self, _, frame):
        name = type(frame).__name__
        self.ended += name == "LLMFullResponseEndFrame"
        if name == "ErrorFrame":
            self.errors.append(frame.error)

    async def check(self, settings):
        """What the tables have equals what Pipecat has."""
        stored = await all_of(settings, self.ledger)
        messages = self.bot.context.messages
        assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(messages)
        assert self.ledger.lost == {}
        return messages


def test_a_worker_of_ours_answers_a_turn(settings):
    model = ScriptedLLMService(
        script=script(
            {"say": [{"thought": "Hm.", "signature": "s", "keep": True}, {"text": "Yes, at 22:40."}]}
        )
    )

    async def scene():
        talk = await Talk.made(settings)
        async with answering(settings, model):
            await talk.bot.run(lambda _: talk.ask("Is there a night train?"))
        assert talk.errors == []
        messages = await talk.check(settings)
        assert [wire(one).get("content") for one in messages if isinstance(one, dict)] == [
            "Is there a night train?",
            "Yes, at 22:40.",
        ]

    on_the_road(settings, scene)
    assert in_sql(settings, "SELECT status, model FROM runs") == [("ended", "scripted")]
    told = in_sql(
        settings,
        "SELECT type, count(*) FROM frames WHERE type LIKE 'LLMFullResponse%%' OR type = 'LLMRunFrame' GROUP BY 1",
    )
    assert dict(told) == {
        "LLMRunFrame": 1,
        "LLMFullResponseStartFrame": 1,
        "LLMFullResponseEndFrame": 1,
    }
