"""Random conversations: whatever happens in whatever order, at each sync point the context equals the fold."""

import asyncio
import os
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pipecat import version
from pipecat.frames.frames import (
    LLMMessagesAppendFrame,
    LLMMessagesTransformFrame,
    LLMMessagesUpdateFrame,
    TTSSpeakFrame,
)
from tests.bridges.pipecat.bots import Answer, Bot
from tests.bridges.pipecat.recording import Recording

NOTE = {"role": "developer", "content": "A note."}

EDITS = {
    "insert": lambda messages: messages.insert(min(1, len(messages)), dict(NOTE)),
    "pop": lambda messages: messages and messages.pop(),
    "change": lambda messages: (
        messages and isinstance(messages[0], dict) and messages[0].update(content="Changed.")
    ),
    "many": lambda messages: messages.extend(dict(NOTE) for _ in range(12)),
    "trim": lambda messages: messages.__delitem__(slice(0, len(messages) // 2)),
    "shuffle": lambda messages: random.Random(7).shuffle(messages),
}
SCRIPTS = 500 if os.environ.get("BRIDGE_KILLS") == "all" else 15 if version().startswith("1.8.") else 50
"""Many in `make chaos`, few for the oldest supported release: any of them shows its differences."""

ACTIONS = [
    *("ask", "ask", "ask", "cut", "call", "background", "late", "speak", "append", "update", "transform"),
    *(f"edit {name}" for name in EDITS),
]


async def act(bot, action, number):
    kind, _, which = action.partition(" ")
    match kind:
        case "ask":
            bot.model.answers[:] = [
                Answer([f"Answer {number}", ", yes."], thought="Hm." if number % 2 else None)
            ]
            await bot.ask(f"Question {number}")
        case "cut":
            bot.model.answers[:] = [Answer(["One", " two", " three"], stops_at=2)]
            bot.model.stopped.clear()
            await bot.say("Count.")
            await bot.model.stopped.wait()
            await bot.interrupt()
        case "call" | "background" | "late":
            bot.model.answers[:] = [Answer(["Well."], [(kind, f"call-{number}", {"n": number})])]
            count = bot.model.count
            await bot.say("Do it.")
            await bot.model.until_answered(count + 1)
            await bot.settle()
        case "speak":
            await bot.queue(TTSSpeakFrame("A line."))
        case "append":
            await bot.queue(LLMMessagesAppendFrame(messages=[dict(NOTE)], run_llm=False))
        case "update":
            await bot.queue(LLMMessagesUpdateFrame(messages=[dict(NOTE)], run_llm=False))
        case "transform":
            await bot.queue(
                LLMMessagesTransformFrame(transform=lambda messages: messages[-3:], run_llm=False)
            )
        case "edit":
            EDITS[which](bot.context.messages)
    await bot.settle()


@settings(max_examples=SCRIPTS)
@given(st.booleans(), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=12), st.booleans())
def test_any_conversation_is_mirrored(speaks, actions, ends_in_the_middle):
    recording, bot = Recording(), Bot(speaks=speaks)
    go_on = asyncio.Event()

    async def at_once(params):
        await params.result_callback({"n": params.arguments["n"]})

    async def late(params):
        await go_on.wait()
        await params.result_callback(None)

    bot.model.register_function("call", at_once)
    bot.model.register_function("background", at_once, cancel_on_interruption=False)
    bot.model.register_function("late", late, cancel_on_interruption=False)

    async def play(bot):
        for number, action in enumerate(actions):
            await act(bot, action, number)
        if ends_in_the_middle:
            await bot.say("And now")
        else:
            go_on.set()
            await bot.settle()

    recording.run(bot, play)
