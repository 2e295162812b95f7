"""Tokens of an answer that wait together and share a frame."""

from collections import deque
from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.support.pipecat_frames import LLMTextFrame

from frameledger_services.pipecat.capture import ASSISTANT, CHANGES, FIELDS, Item
from frameledger_services.pipecat.captured_frame import GENERATED
from frameledger_services.pipecat.joined_tokens import MAX_CHARACTERS, MAX_JOINED, WITHIN_NS, take_joined
from frameledger_services.pipecat.mirror import Appended
from frameledger_services.pipecat.outgoing import Encoder


@dataclass
class LLMFullResponseEndFrame:
    skip_tts: bool | None = None


def captured(*frames: object, at: str = ASSISTANT, apart_ns: int = 1) -> list[Item]:
    return [(number, number * apart_ns, at, frame, None) for number, frame in enumerate(frames)]


def joined(items: list[Item]) -> list[Item]:
    left = deque(items)
    taken = []
    while left:
        taken.append(take_joined(left))
    return taken


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
    )
)
def test_joined_or_not_the_same_text_is_recorded_in_the_same_order(frames):
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
    assert recorded(joined(items)) == recorded(items)
