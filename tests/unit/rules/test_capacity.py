"""How many messages and bytes each frame needs under the limits of a context (R8.4).

The numbers are part of the fold: with others a frame that counted would be ignored when the log is read again.
"""

import json

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    context,
    end,
    hear,
    interrupt,
    limits,
    mirror,
    play,
    push,
    result,
    rewrite,
    settings,
    speak,
    start,
    stop,
    think,
    thinking,
    thought,
    tokens,
    tools,
    update,
    words,
)

from frameledger.frames import VisionTextFrame

pytestmark = pytest.mark.rule("R8.4")

ENVELOPE, CHARACTER = 1024, 8
MAX = 100_000
ANY = (1, 1)
"""The smallest limits that there are."""


def written(*frames):
    """The bytes of the messages that these frames write, as compact JSON."""
    return sum(
        len(json.dumps(one, separators=(",", ":"), ensure_ascii=False)) for one in play(*frames).messages
    )


def least(name, accepted):
    """The smallest limit of this name that is enough."""
    low, high = 1, MAX
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if accepted(limits(**{name: middle})) else (middle + 1, high)
    return low


def needs(given, frame):
    """The smallest limits under which the frame is not `context_full` behind the given ones."""
    before = play(given)
    return tuple(
        least(name, lambda limit: play(limit, frame, onto=before).became != "context_full")
        for name in ("context_messages", "context_bytes")
    )


HI = written(append("a"))
PAIR = written(begin("a"))
ASYNC = written(begin("a", sync=False))
SAID = written(answer("First"))
NAMES = CHARACTER * (len("{}") + 3 * len('"a"'))
RESULT = len('{"role":"tool","tool_call_id":"a","content":"1"}')
HELD = append("a", run_llm=True, second_input="coalesce")
TOOLS = len('[{"type":"function","function":{"name":"f","parameters":{}}}]')


def of_text(length, first=True):
    """One piece of this length, of a message that begins with it or goes on."""
    return CHARACTER * (length + 1) + first * ENVELOPE


def of_open(length):
    """What a text of this length that is open reserves."""
    return CHARACTER * length + ENVELOPE


MESSAGES = {
    "an append": [[], append("a", "a"), (2, 2 * HI)],
    "an append behind others": [[append("a", "a")], append("a"), (3, 3 * HI)],
    "an append behind one that was removed": [[append("a"), rewrite(1, None)], append("a"), (2, 2 * HI)],
    "an append behind one that was rewritten": [[append("a"), rewrite(1, "b")], append("a"), (2, 3 * HI)],
    "an append behind an update": [[append("a", "a"), update("b")], append("a"), (2, 2 * HI)],
    "an update": [[append("a", "a"), speak(), hear("ab")], update("c"), (2, HI + of_open(2))],
    "a context": [[append("a", "a"), speak(), hear("ab")], context("c"), (2, HI + of_open(2))],
    "a rewriting": [[append("a", "a")], rewrite(1, "ab"), (2, 2 * HI + HI + 1)],
    "a removal": [[append("a")], rewrite(1, None), ANY],
    "tools": [[], tools("f"), (1, TOOLS + len("[]") + ENVELOPE)],
    "other tools": [[tools("f")], tools("g"), (1, 2 * TOOLS + ENVELOPE)],
    "tools behind an append": [[append("a")], tools("f"), (2, HI + TOOLS + len("[]") + ENVELOPE)],
    "a setting": [[append("a", "a")], settings(temperature=1), ANY],
    "an append behind one that is held": [[ask(), HELD], append("b"), (2, 2 * HI)],
}

ALL_OPEN = [start(), think(), thinking("abc"), tokens("ab"), speak(), hear("a")]

TEXTS = {
    "first words of a turn": [[speak()], hear("ab"), (1, of_text(2))],
    "more words of a turn": [[speak(), hear("ab")], hear("c"), (1, of_open(2) + of_text(1, first=False))],
    "words outside a turn": [[], hear("ab"), (1, of_text(2))],
    "a stop": [[speak(), hear("ab")], stop(), ANY],
    "a first token": [[start()], *tokens("ab"), (1, of_text(2))],
    "a first piece": [[start()], *words("ab"), (1, of_text(2))],
    "a first piece about a picture": [[start()], VisionTextFrame(text="ab"), (1, of_text(2))],
    "one more token": [[start(), tokens("ab")], *tokens("c"), (1, of_open(2) + of_text(1, first=False))],
    "a token behind a push": [[start(), tokens("First"), push()], *tokens("c"), (2, SAID + of_text(1))],
    "a token outside a response": [[], *tokens("ab"), ANY],
    "a piece that stays out": [[start()], *words("ab", append_to_context=False), ANY],
    "an end": [[start(), tokens("ab")], end(), ANY],
    "a first piece of a thought": [[start(), think()], *thinking("ab"), (1, of_text(2))],
    "one more piece of a thought": [
        [start(), think(), thinking("ab")],
        *thinking("c"),
        (1, of_open(2) + of_text(1, first=False)),
    ],
    "a piece of a thought that stays out": [[start(), think(llm=None)], *thinking("ab"), ANY],
    "a piece of no thought": [[start()], *thinking("ab"), ANY],
    "a signature alone": [[start(), think()], thought("s"), (1, CHARACTER * len('"s"') + ENVELOPE)],
    "a signature": [
        [start(), think(), thinking("ab")],
        thought("s"),
        (1, of_open(2) + CHARACTER * len('"s"')),
    ],
    "a signature of a thought that stays out": [[start(), think(llm=None)], thought("s"), ANY],
    "the end of a thought without one": [[start(), think(), thinking("ab")], thought(), ANY],
    "a signature of no thought": [[start()], thought("s"), ANY],
    "an append behind all that is open": [
        ALL_OPEN,
        append("a"),
        (4, of_open(3) + of_open(2) + of_open(1) + HI),
    ],
}

CALLS = {
    "an announcement": [[], announce("a", "b"), (6, 6 * ENVELOPE)],
    "a call that nobody announced": [[], begin("a"), (3, 3 * ENVELOPE + NAMES)],
    "a call that was announced": [[announce("a")], begin("a"), (3, 3 * ENVELOPE + NAMES)],
    "an append beside a synchronous call": [[begin("a")], append("a"), (3, PAIR + ENVELOPE + HI)],
    "an append beside an asynchronous one": [
        [begin("a", sync=False)],
        append("a"),
        (4, ASYNC + ENVELOPE + HI),
    ],
    "an append beside one that was announced": [[announce("a")], append("a"), (4, 3 * ENVELOPE + HI)],
    "a result": [[begin("a")], result("a", 12), (2, PAIR + 2 * ENVELOPE + CHARACTER * len('12"a"'))],
    "a result that says whether to run": [
        [begin("a")],
        result("a", 12, says=True),
        (2, PAIR + 2 * ENVELOPE + CHARACTER * len('12"a"')),
    ],
    "a result in between": [
        [begin("a", sync=False)],
        result("a", 12, final=False),
        (4, ASYNC + 2 * ENVELOPE + CHARACTER * len('12"a"')),
    ],
    "a decision about a call": [
        [begin("a"), result("a", 1, settled_as="ambiguous")],
        result("a", 12, settled_as="resolved"),
        (3, PAIR + RESULT + ENVELOPE + CHARACTER * len('12"a"')),
    ],
}


@pytest.mark.parametrize(
    ("given", "frame", "least_limits"),
    [*MESSAGES.values(), *TEXTS.values(), *CALLS.values()],
    ids=[*MESSAGES, *TEXTS, *CALLS],
)
def test_a_frame_needs_so_many_messages_and_bytes(given, frame, least_limits):
    assert needs(given, frame) == least_limits


@pytest.mark.parametrize(
    ("said", "least_limits"),
    [
        (answer("First"), (2, SAID + of_open(2))),
        ([start(), tokens("First")], (2, of_open(5) + of_open(2))),
    ],
    ids=["a text that was written", "a text that is open"],
)
def test_a_heard_text_needs_a_message_and_its_bytes_beside_what_was_said(said, least_limits):
    before = play(said)
    assert least_limits == tuple(
        least(name, lambda limit: play(limit, interrupt("Fi"), onto=before).texts == ["assistant: Fi"])
        for name in ("context_messages", "context_bytes")
    )


TOO_MUCH = {
    "an append": [[], append("a"), ["user: a"]],
    "an append behind an update": [[update("a")], append("b"), ["user: a", "user: b"]],
    "a call": [[], begin("a"), ["assistant calls a(a)", "tool a: IN_PROGRESS"]],
    "a result": [[begin("a")], result("a", 1), ["assistant calls a(a)", "tool a: 1"]],
    "a heard text": [answer("First"), interrupt("Fi"), ["assistant: Fi"]],
}


@pytest.mark.rule("R8.1")
@pytest.mark.parametrize(("given", "frame", "texts"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_in_a_recording_no_size_is_too_much(given, frame, texts):
    played = play(context(react=False), given, limits(context_messages=1, context_bytes=1), frame)
    assert (played.became, played.texts) == ("applied", texts)


@pytest.mark.rule("R8.1", "RA5.mirror")
@pytest.mark.parametrize(("given", "frame", "texts"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_in_a_mirror_no_size_is_too_much(given, frame, texts):
    played = play(mirror("m"), given, limits(context_messages=1, context_bytes=1), frame)
    by_clients = [text for text in texts if text.startswith("user")]
    assert (played.became, played.texts) == ("applied", by_clients)


@pytest.mark.parametrize("sync", [True, False])
def test_a_result_that_has_room_is_written_under_a_limit(sync):
    played = play(limits(context_bytes=20_000), begin("a", sync=sync), result("a", "so"))
    assert (played.became, played.asked) == ("applied", [3])
    assert "so" in played.messages[-1]["content"]


NO_ROOM = {
    "a call that starts": [
        [announce("a", "b"), begin("a"), result("a", 1)],
        begin("b", arguments="x" * 9_000),
    ],
    "a result": [[announce("a", "b"), begin("a"), begin("b"), result("a", 1)], result("b", "x" * 9_000)],
}


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize(("waits", "last"), NO_ROOM.values(), ids=NO_ROOM)
def test_a_result_waits_no_longer_for_a_call_that_has_no_room(waits, last):
    waiting = play(limits(context_bytes=20_000), waits)
    assert waiting.asked == []
    played = play(last, onto=waiting)
    assert (played.became, played.asked) == ("context_full", [len(played.steps)])
