"""Which words of the log are in no message, whatever Pipecat dropped and whoever wrote the messages."""

from __future__ import annotations

from typing import Any

import pytest

from frameledger.frames import (
    AnyFrame,
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMTextFrame,
    TextFrame,
    TranscriptionFrame,
    UnknownFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services.pipecat.mirror import Appended
from frameledger_services.pipecat.repairs import repairs
from frameledger_services.pipecat.unrecorded import MUTED, SPOKEN, UNMUTED, Unrecorded

pytestmark = pytest.mark.regression("bridge 27")

SIGNS: dict[str, Any] = {
    "user": {"open": UserStartedSpeakingFrame, "cut": UserStoppedSpeakingFrame},
    "assistant": {
        "open": LLMFullResponseStartFrame,
        "ended": LLMFullResponseEndFrame,
        "cut": InterruptionFrame,
    },
}
WORD = {"user": TranscriptionFrame, "assistant": TextFrame}
PICTURE = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]


def added(frames: list[AnyFrame]) -> list[tuple[str, str]]:
    """Returns the roles and texts that a restore adds."""
    return [
        (message["role"], message["content"])
        for change in repairs([], frames)
        if isinstance(change, Appended)
        for message in change.messages
    ]


def said(role: str, content: Any, kind: Any = LLMMessagesAppendFrame) -> Any:
    return kind(messages=[{"role": role, "content": content}])


def told(role: str, script: str, content: Any, kind: Any = LLMMessagesAppendFrame) -> list[AnyFrame]:
    """Returns frames with these words and signs, such as `open`, and then a message."""
    signs, word = SIGNS[role], WORD[role]
    frames = [signs[one]() if one in signs else word(text=one) for one in script.split()]
    return [*frames, said(role, content, kind)]


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    ("script", "content", "remain"),
    [
        # All words are in it.
        ("open I have five", "I have five", None),
        ("open I have five", "Well: I  have five!", None),
        ("open I have five cut", "I have five", None),
        ("open I have five", [{"type": "text", "text": "I have"}, {"type": "text", "text": "five"}], None),
        # Some are, and no other text.
        ("dropped open I have five", "I have five", None),
        ("dropped open I have five cut", "I have five", None),
        ("dropped open I have five", "I have", "five"),
        ("open I have five cut", "I have", None),
        ("open I have cut later", "I have", "later"),
        # Other text, of an answer or turn that is over.
        ("open I have five cut", "I have [redacted]", None),
        ("open I have five cut", "ha", None),
        # Other text, of the application.
        ("open I have five", "A note.", "I have five"),
        ("open I have five", "ha", "I have five"),
        ("open I have cut later", "A note.", "I have later"),
        # Parts that are not these words.
        ("open I have five cut", PICTURE, "I have five"),
        ("open I have five cut", None, "I have five"),
    ],
)
def test_a_message_settles_the_words_that_are_in_it_or_in_none(role, script, content, remain):
    assert added(told(role, script, content)) == ([] if remain is None else [(role, remain)])


@pytest.mark.parametrize(
    ("script", "content", "remain"),
    [
        # A word of the next answer, which the transport speaks before the aggregator has the end of this one.
        ("open I have ended", "I have", None),
        ("open I have next ended", "I have", "next"),
        ("open **I** have ended", "I have", None),
    ],
)
def test_words_of_the_next_answer_are_not_in_the_message_of_this_one(script, content, remain):
    frames = told("assistant", script, content)
    expected = [] if remain is None else [("assistant", remain)]
    assert added(frames) == expected
    assert added([*frames, LLMFullResponseStartFrame()]) == expected


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_an_update_only_messages_with_the_words_settle_them(role):
    for script, content, is_settled in [
        ("open I have five", "I have five", True),
        ("open I have five", "I", False),
        ("open I have five cut", "I have", True),
        ("open I have five cut", "Earlier.", False),
    ]:
        remain = [] if is_settled else [(role, "I have five")]
        assert added(told(role, script, content, LLMMessagesUpdateFrame)) == remain


def test_words_that_were_dropped_are_gone_with_the_next_answer_and_those_of_a_user_with_the_next_message():
    dropped: list[AnyFrame] = [LLMFullResponseStartFrame(), TextFrame(text="Well"), InterruptionFrame()]
    assert added(dropped) == [("assistant", "Well")]
    assert added([*dropped, LLMFullResponseStartFrame()]) == []
    # A realtime service writes them when the answer starts, however many turns it were.
    turns: list[AnyFrame] = []
    for word in ("Book", "a table"):
        turns += [UserStartedSpeakingFrame(), TranscriptionFrame(text=word), UserStoppedSpeakingFrame()]
    assert added(turns) == [("user", "Book a table")]
    assert added([*turns, said("user", "Book a table")]) == []


def test_what_a_muted_user_says_is_in_no_message():
    muted: list[AnyFrame] = [
        UnknownFrame(type=MUTED),
        TranscriptionFrame(text="hello hello"),
        UnknownFrame(type=UNMUTED),
    ]
    assert added(muted) == []
    assert added([*muted, TranscriptionFrame(text="Book")]) == [("user", "Book")]
    assert added([muted[0], LLMMirrorFrame(mirror="next", react=False), muted[1]]) == [
        ("user", "hello hello")
    ]


def test_an_answer_of_a_worker_that_is_being_spoken_is_not_over_when_the_worker_has_written_it():
    run: dict[str, Any] = {"run_id": "7"}
    frames: list[AnyFrame] = [
        LLMRunFrame(metadata={SPOKEN: True}),
        LLMFullResponseStartFrame(**run),
        TextFrame(text="I"),
        LLMTextFrame(text="I have five", **run),
        LLMFullResponseEndFrame(**run),
    ]
    assert added([*frames, said("assistant", "A note.")]) == [("assistant", "I")]


@pytest.mark.regression("bridge 42")
def test_an_answer_of_a_worker_that_no_voice_speaks_is_kept_as_it_was_written():
    run: dict[str, Any] = {"run_id": "7", "skip_tts": True}
    frames: list[AnyFrame] = [
        LLMRunFrame(metadata={SPOKEN: True}),
        LLMFullResponseStartFrame(**run),
        LLMTextFrame(text="Your code", **run),
        LLMTextFrame(text=" is 4711", **run),
    ]
    assert added(frames) == [("assistant", "Your code is 4711")]
    ended: list[AnyFrame] = [*frames, LLMFullResponseEndFrame(**run)]
    assert added([*ended, said("assistant", "Your code is 4711")]) == []
    # The next one is spoken.
    spoken: dict[str, Any] = {"run_id": "8"}
    then: list[AnyFrame] = [
        LLMRunFrame(metadata={SPOKEN: True}),
        LLMFullResponseStartFrame(**spoken),
        TextFrame(text="I"),
        LLMTextFrame(text="I have five", **spoken),
    ]
    assert added([*ended, said("assistant", "Your code is 4711"), *then]) == [("assistant", "I")]


@pytest.mark.regression("bridge 29")
@pytest.mark.parametrize(
    ("frames", "are_all"),
    [
        ([said("user", "When?"), LLMFullResponseStartFrame(), TextFrame(text="At")], True),
        ([said("user", "When?"), TextFrame(text="At")], False),
        ([said("user", "When?"), TextFrame(text="At"), said("developer", "A note.")], False),
        ([said("user", "When?"), TextFrame(text="At"), said("assistant", "A note.")], False),
        ([said("user", "When?"), TextFrame(text="At"), said("assistant", "Says: At")], True),
        ([said("user", "When?"), TextFrame(text="At"), said("user", "x", LLMMessagesUpdateFrame)], False),
        ([LLMFullResponseStartFrame(), TranscriptionFrame(text="When?")], False),
        ([LLMFullResponseStartFrame(), TranscriptionFrame(text="When?"), said("user", "When?")], True),
        ([TextFrame(text="At"), TranscriptionFrame(text="When?"), EndFrame()], True),
    ],
)
def test_words_can_be_older_than_frames_without_their_beginning(frames, are_all):
    assert Unrecorded.of(frames).is_complete == are_all
