"""A resent history is recognised for any conversation, and the resulting conversation reads as it was sent."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger import async_tool_messages as background
from frameledger_services.gateway.openai import assistant_words, history, seen_messages
from frameledger_services.gateway.openai.assistant_words import Words
from frameledger_services.gateway.openai.history import Held

Message = dict[str, Any]

TEXTS = st.lists(st.sampled_from(["One", "two", "three", "ä", "."]), min_size=1, max_size=4).map(" ".join)
SPACES = st.sampled_from([" ", "  ", "\n", "\n\n"])
CALL: Message = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
UNSEEN: list[list[Message]] = [
    [CALL, {"role": "tool", "tool_call_id": "c", "content": "IN_PROGRESS"}],
    [{"llm": "anthropic", "message": {"type": "thought", "text": "Hm."}}],
    [{"role": "developer", "content": "A note of an operator."}],
]


@dataclass
class Turn:
    """A user's message, the stored messages that follow it, and those that its client shows."""

    asked: Message
    held: list[Held] = field(default_factory=list)
    shown: list[Message] = field(default_factory=list)


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


@st.composite
def turns(draw: st.DrawFn, *, reports: bool = True, cuts: bool = True) -> Turn:
    asked: Message = {"role": "user", "content": draw(TEXTS)}
    turn = Turn(asked, [Held(dict(asked))])
    texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    for text in texts:
        for unseen in draw(st.lists(st.sampled_from(UNSEEN), max_size=2)):
            turn.held += map(Held, unseen)
        turn.held.append(Held(said(text)))
    shown = "\n\n".join(texts)
    if cuts and draw(st.booleans()):
        # Of the last text the one has more than the other.
        last = texts[-1]
        kept = last[: draw(st.integers(1, len(last)))]
        more = draw(st.booleans())
        turn.held[-1] = Held(said(kept if more else last), is_cut=True)
        shown = "\n\n".join([*texts[:-1], last if more else kept])
        if not kept.strip() or not shown.strip():
            shown = "\n\n".join(texts)
    if reports and draw(st.booleans()):
        turn.held.append(Held(background.build_final_result_message("b", '"done"')))
        turn.held.append(Held(said(draw(TEXTS))))
    turn.shown = [said(draw(SPACES).join(["", *shown.split(" "), ""]))]
    if draw(st.booleans()):
        turn.shown = [{"role": "assistant", "content": [{"type": "text", "text": shown}]}]
    return turn


def held(talk: list[Turn]) -> list[Held]:
    return [one for turn in talk for one in turn.held]


def sent(talk: list[Turn]) -> list[Message]:
    return [message for turn in talk for message in (turn.asked, *turn.shown)]


def after(stored: list[Held], plan: history.Plan) -> list[Held]:
    new = [Held(dict(one)) for one in plan.messages]
    return new if plan.kind == "replace" else [*stored, *new]


def as_read(messages: list[Message]) -> list[tuple[str, str]]:
    """Returns what a reader sees: the speakers and their words, in order."""
    lines: list[tuple[str, str]] = []
    for message in messages:
        role = message.get("role")
        text = " ".join(seen_messages.text_of(message).split())
        if role not in ("user", "assistant") or not text:
            continue
        if role == "assistant" and lines and lines[-1][0] == role:
            lines[-1] = (role, f"{lines[-1][1]} {text}")
        else:
            lines.append((str(role), text))
    return lines


NEW: Message = {"role": "user", "content": "And what is new?"}


@given(st.lists(turns(), max_size=4))
def test_a_faithful_client_says_what_is_new_and_nothing_else(talk):
    assert history.plan(held(talk), [*sent(talk), NEW]) == history.Plan("append", (NEW,))


@given(st.lists(turns(), min_size=1, max_size=4), st.data())
def test_the_same_history_again_says_nothing_more(talk, data):
    wanted = edited(sent(talk), data)
    first = history.plan(held(talk), wanted)
    again = history.plan(after(held(talk), first), wanted)
    assert again == history.Plan("append", ())


@given(st.lists(turns(reports=False), min_size=1, max_size=4), st.data())
def test_a_history_that_takes_the_place_of_another_reads_as_it_was_sent(talk, data):
    wanted = edited(sent(talk), data)
    plan = history.plan(held(talk), wanted)
    if plan.kind == "replace":
        assert as_read(list(map(dict, plan.messages))) == as_read(wanted)


@given(st.lists(turns(reports=False, cuts=False), min_size=1, max_size=4), st.data())
def test_whatever_is_sent_the_conversation_reads_so_afterwards(talk, data):
    wanted = edited(sent(talk), data)
    stored = held(talk)
    now = after(stored, history.plan(stored, wanted))
    assert as_read([dict(one.message) for one in now]) == as_read(wanted)


@given(st.lists(turns(), min_size=2, max_size=4), st.data())
def test_what_the_client_never_saw_stays_as_far_as_nothing_was_edited(talk, data):
    number = data.draw(st.integers(1, len(talk) - 1))
    wanted = [*sent(talk[:number]), {"role": "user", "content": "Something else entirely?"}]
    plan = history.plan(held(talk), wanted)
    assert plan.kind == "replace"
    unseen = [
        one.message for one in held(talk[:number]) if one.message.get("role") not in ("user", "assistant")
    ]
    assert [one for one in plan.messages if one.get("role") not in ("user", "assistant")] == unseen


def edited(messages: list[Message], data: st.DataObject) -> list[Message]:
    """Returns a history in which a message is omitted, changed or repeated, or which ends earlier. It ends with a
    user's message."""
    place = data.draw(st.integers(0, len(messages) - 1))
    one = messages[place]
    other = {**one, "content": data.draw(TEXTS)}
    found = data.draw(
        st.sampled_from(
            [
                messages,
                messages[:place],
                messages[:place] + messages[place + 1 :],
                [*messages[:place], other, *messages[place + 1 :]],
                [*messages[:place], one, one, *messages[place + 1 :]],
            ]
        )
    )
    return [*found, NEW]


@given(st.lists(turns(), min_size=1, max_size=4), TEXTS)
def test_the_stored_history_itself_is_recognised_with_all_that_no_client_sees(talk, text):
    """This is how a response is continued: its client sends nothing of the history."""
    new = {"role": "user", "content": text}
    stored = held(talk)
    plan = history.plan(stored, [*(one.message for one in stored), new])
    assert plan == history.Plan("append", (new,))


def plain_cuts(words: list[Words], sent: str) -> dict[int, str | None] | None:
    """Returns `assistant_words.cuts` by its definition, in quadratic time: each message is compared with the whole rest
    of the text. No words are omitted."""
    cut: dict[int, str | None] = {}
    if_all_is_of_one: dict[int, str | None] | None = None
    rest = sent.strip()
    for number, piece in enumerate(words):
        left = " ".join(rest.split())
        may_be_last = all(later.may_be_missing for later in words[number + 1 :])
        if f"{left} ".startswith(f"{piece.text} " if piece.is_cut else piece.text):
            if piece.is_cut and may_be_last:
                if_all_is_of_one = {**cut, piece.place: rest}
            *words_before, last = piece.text.split()
            count = len(words_before)
            rest = "".join(rest.split(maxsplit=count)[count:]).removeprefix(last).lstrip()
        elif left and piece.is_cut and (piece.text.startswith(left) or left.startswith(piece.text)):
            cut[piece.place] = rest
            rest = ""
        elif left and piece.is_cut:
            cut[piece.place] = None
        elif not (may_be_last and piece.may_be_missing):
            return if_all_is_of_one
    return if_all_is_of_one if rest else cut


FEW = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4)


@st.composite
def said_words(draw: st.DrawFn) -> tuple[list[Words], str]:
    """Draws messages of the assistant, and a text that is similar to them."""
    words: list[Words] = []
    sent: list[str] = []
    for place in range(draw(st.integers(0, 5))):
        text = " ".join(draw(FEW.filter(bool)))
        words.append(Words(place, text, *(draw(st.booleans()) for _ in range(3))))
        beginning = text[: draw(st.integers(0, len(text)))]
        sent.append(draw(st.sampled_from([text, beginning, " ".join(draw(FEW))])))
    return words, draw(SPACES | st.just("")).join(sent)


@pytest.mark.regression("gateway 59")
@pytest.mark.regression("gateway 134")
@given(said_words())
def test_texts_that_may_be_cut_are_compared_as_each_with_all_that_is_left(case):
    words, sent = case
    found = plain_cuts(words, sent)
    if found is None:
        found = plain_cuts([one for one in words if not one.may_be_left_out], sent)
    assert assistant_words.cuts(words, sent) == found
