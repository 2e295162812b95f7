"""The `LLMContext` that `restore()` returns, from a conversation in memory."""

import asyncio

import pytest
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.processors.aggregators.llm_context import NOT_GIVEN, LLMContext
from tests.bounds import IN_PROCESS
from tests.bridges.pipecat.recording import as_bytes, stored_bytes
from tests.unit.test_pipecat_restore import Kept

from frameledger.frames import LLMMessagesAppendFrame, LLMMirrorFrame, LLMSetToolChoiceFrame
from frameledger_services.pipecat import FrameledgerObserver
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.values import to_json

WEATHER = ToolsSchema([FunctionSchema("weather", "Tells the weather.", {}, [])])
NAMED = {"type": "function", "function": {"name": "weather"}}
GONE = {"type": "function", "function": {"name": "gone"}}


class Client(Kept):
    """The client of an observer, with this conversation."""

    async def publish(self, context_id, *frames, within, wait=False):
        if wait:
            return await super().publish(context_id, *frames, wait=wait, within=within)
        return tuple(self.store(one.frame) for one in frames)

    async def close(self):
        pass


def restored(*left, **given):
    """Returns the context after these frames of a process that died, and the observer."""

    async def scene():
        async with asyncio.timeout(IN_PROCESS):
            ledger = FrameledgerObserver("call-7", connect=lambda: Client(left))
            context = await ledger.restore(**given)
            await ledger.finish()
            return context, ledger

    return asyncio.run(scene())


def left_by_another(*messages, choice=None):
    frames = [LLMMirrorFrame(mirror="old", react=False)]
    if choice is not None:
        frames.append(LLMSetToolChoiceFrame(tool_choice=choice, mirror="old"))
    return [*frames, LLMMessagesAppendFrame(messages=list(messages), mirror="old")]


@pytest.mark.regression("bridge 36")
@pytest.mark.parametrize(
    ("stored", "given", "wanted"),
    [
        ("required", {}, NOT_GIVEN),
        ("required", {"tools": WEATHER}, "required"),
        (NAMED, {"tools": WEATHER}, NAMED),
        (GONE, {"tools": WEATHER}, NOT_GIVEN),
        (GONE, {"tools": WEATHER, "tool_choice": "none"}, "none"),
        (None, {"tools": WEATHER}, NOT_GIVEN),
    ],
)
def test_a_stored_choice_is_restored_if_the_tools_of_today_can_follow_it(stored, given, wanted):
    context, _ = restored(*left_by_another({"role": "user", "content": "Hi"}, choice=stored), **given)
    assert context.tool_choice == wanted


LARGE = "data:image/jpeg;base64," + "A" * 1_600_000


@pytest.mark.regression("bridge 34")
def test_a_medium_that_was_too_large_to_store_is_a_text_after_the_restore():
    question = LLMContext.create_image_url_message(url=LARGE, text="What is this?")
    note = {"type": "text", "text": "(image/jpeg of 1.2 MB, not stored)"}
    context, ledger = restored(
        *left_by_another(to_json(question), to_json({"role": "user", "content": LARGE}))
    )
    assert context.messages == [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, note]},
        {"role": "user", "content": note["text"]},
    ]
    assert ledger.restored.without_media == 2
    # They are not published again for that.
    assert Mirror(context.messages, known=True).changes(context.messages) == ()


@pytest.mark.regression("bridge 34")
def test_a_new_conversation_keeps_the_media_that_it_was_given():
    given = [LLMContext.create_image_url_message(url=LARGE)]
    context, ledger = restored(messages=given)
    assert ledger.restored.is_new
    assert context.messages == given


@pytest.mark.regression("bridge 38")
def test_the_bookmark_of_a_gemini_image_has_the_attributes_that_pipecat_reads():
    bookmark = {"inline_data": {"data": {"$bytes": "AAEC"}, "mime_type": "image/png"}}
    content = {"type": "thought_signature", "signature": {"$bytes": "AA=="}, "bookmark": bookmark}
    stored = {"llm": "google", "message": content}
    context, _ = restored(*left_by_another(stored))
    blob = context.messages[0].message["bookmark"]["inline_data"]
    assert (blob.data, blob.mime_type) == (b"\x00\x01\x02", "image/png")
    assert as_bytes(context.messages) == stored_bytes([stored])


def test_the_time_of_a_restore_can_be_given_by_its_old_name():
    with pytest.warns(DeprecationWarning, match="use within"):
        context, _ = restored(wait=IN_PROCESS)
    assert context.messages == []
