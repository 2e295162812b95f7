"""The queue between the event loop and the thread: tokens of an answer that wait together and share a frame."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pipecat_frames import LLMTextFrame

from frameledger_services.pipecat.capture import CHANGES, FIELDS
from frameledger_services.pipecat.captured_frame import ASSISTANT, GENERATED
from frameledger_services.pipecat.captured_items import (
    MAX_CHARACTERS,
    MAX_JOINED,
    WITHIN_NS,
    CapturedItems,
    Item,
)
from frameledger_services.pipecat.mirror import Appended
from frameledger_services.pipecat.outgoing import Encoder


@dataclass
class LLMFullResponseEndFrame:
    skip_tts: bool | None = None


def captured(*frames: object, at: str = ASSISTANT, apart_ns: int = 1) -> list[Item]:
    return [(number, number * apart_ns, at, frame, None) for number, frame in enumerate(frames)]


def taken(entries: list[Any], *, joined: bool = True) -> list[Item]:
    items = CapturedItems(entries)
    found = []
    while items:
        found.append(items.take(joined=joined))
    return found


def joined(items: list[Item]) -> list[Item]:
    return taken(items)


def texts(items: list[Item]) -> list[object]:
    return [one[3].text for one in joined(items)]


def test_tokens_that_wait_share_a_frame_with_the_number_and_the_time_of_the_first():
    tokens = [LLMTextFrame(text) for text in ("The", " train", " leaves.")]
    ((sequence, ns, at, frame, model),) = joined(captured(*tokens)[1:])
    assert (sequence, ns, at, frame, model) == (1, 1, ASSISTANT, LLMTextFrame(" train leaves."), None)
    assert [one.text for one in tokens] == ["The", " train", " leaves."]


def test_tokens_that_differ_in_more_than_their_text_share_no_frame():
    frames = [
        LLMTextFrame("a"),
        LLMTextFrame("b", append_to_context=False),
        LLMTextFrame("c", skip_tts=True),
        LLMTextFrame("d", includes_inter_frame_spaces=False),
        LLMTextFrame("e", includes_inter_frame_spaces=False),
        LLMTextFrame(None),
        LLMTextFrame(None),
    ]
    assert joined(captured(*frames)) == captured(*frames)
    places = [*captured(LLMTextFrame("a")), *captured(LLMTextFrame("a"), at=GENERATED)]
    assert joined(places) == places


def test_nothing_is_joined_across_another_item():
    for other in (
        (1, 1, ASSISTANT, LLMFullResponseEndFrame(), None),
        (1, 1, CHANGES, (Appended(({"role": "assistant", "content": "a"},)),), None),
        (1, 1, FIELDS, [{"type": "LLMRunFrame"}], None),
    ):
        items = [
            (0, 0, ASSISTANT, LLMTextFrame("a"), None),
            other,
            (2, 2, ASSISTANT, LLMTextFrame("b"), None),
        ]
        assert joined(items) == items


def test_a_frame_is_bounded_in_tokens_in_time_and_in_text():
    many = texts(captured(*[LLMTextFrame("a")] * (MAX_JOINED + 1)))
    assert many == ["a" * MAX_JOINED, "a"]
    slow = texts(captured(*[LLMTextFrame("a")] * 4, apart_ns=WITHIN_NS // 2))
    assert slow == ["aaa", "a"]
    long = "a" * (MAX_CHARACTERS - 1)
    assert texts(captured(LLMTextFrame(long), LLMTextFrame("b"), LLMTextFrame("c"))) == [long + "b", "c"]


@given(
    st.lists(
        st.builds(
            LLMTextFrame, st.text(max_size=3), st.booleans(), st.sampled_from([None, True]), st.booleans()
        )
        | st.builds(LLMFullResponseEndFrame),
        max_size=60,
    ),
    st.sets(st.integers(0, 59)),
)
def test_joined_or_not_the_same_text_is_recorded_in_the_same_order(frames, without_a_number):
    def recorded(items: list[Item]) -> list[dict[str, object]]:
        encoder = Encoder(UUID(int=7))
        runs: list[dict[str, object]] = []
        for item in items:
            for waiting in encoder.encode(item):
                fields = waiting.frame.frame.model_dump(exclude={"id", "produced_at"})
                text = fields.pop("text", None)
                if runs and text is not None and runs[-1]["fields"] == fields:
                    runs[-1]["text"] += text
                else:
                    runs.append({"fields": fields, "text": text})
        return runs

    items = captured(*frames)
    entries = [
        item[3] if item[0] in without_a_number and isinstance(item[3], LLMTextFrame) else item
        for item in items
    ]
    assert recorded(joined(entries)) == recorded(taken(entries, joined=False)) == recorded(items)


def test_tokens_without_a_number_share_the_frame_of_the_token_before_them():
    first, *others = captured(*[LLMTextFrame(text) for text in ("The", " train", " leaves.", " Soon.")])
    last = others.pop()
    entries = [first, *[frame for _, _, _, frame, _ in others], last]
    assert joined(entries) == joined([first, *others, last])


def test_a_token_without_a_number_that_begins_a_frame_has_the_time_before_it_and_a_number_of_its_own():
    silent = LLMTextFrame("b", skip_tts=True)
    entries = [(7, 70, ASSISTANT, LLMTextFrame("a"), None), silent, silent, LLMTextFrame("c")]
    for found in (taken(entries), taken(entries, joined=False)):
        numbers = [sequence for sequence, _, _, _, _ in found]
        assert len(set(numbers)) == len(found)
        assert [(ns, at) for _, ns, at, _, _ in found] == [(70, ASSISTANT)] * len(found)
    assert texts(entries) == ["a", "bb", "c"]


def test_the_oldest_entry_has_a_time_also_without_a_number():
    items = CapturedItems([(0, 5, ASSISTANT, LLMTextFrame("a"), None), LLMTextFrame("b")])
    assert items.oldest_ns == 5
    items.take(joined=False)
    assert items.oldest_ns == 5
    items.take(joined=False)
    with pytest.raises(IndexError):
        _ = items.oldest_ns
