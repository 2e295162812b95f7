"""The projector is killed at every point of a batch that erases: each conversation is erased once, and its next life
begins once."""

import itertools
import signal

import pytest
from tests.support import erasing
from tests.support.killable import EACH_BY_ITSELF, Plan, projector
from tests.support.road import Raw, road_of_its_own  # noqa: F401  # a fixture

from frameledger import derived
from frameledger.frames import LLMContextEraseFrame, LLMMessagesAppendFrame, LLMTextFrame, encode_frame
from frameledger.ids import ContextId, Version


def say(text):
    return encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}], run_llm=True))


def before(number):
    return [Raw(f"talk-{number}-{part}".encode(), say("a secret")) for part in range(3)]


def behind(number):
    """The end of what `before` began: an erasure, late words, and the next life; and a talk that is erased whole."""
    for part in range(3):
        context_id = f"talk-{number}-{part}"
        run = derived.run_id(ContextId(context_id), Version(1))
        yield Raw(context_id.encode(), encode_frame(LLMContextEraseFrame(id="e", why="asked")))
        yield Raw(context_id.encode(), encode_frame(LLMTextFrame(run_id=run, text="a secret")))
        yield Raw(context_id.encode(), encode_frame(LLMContextEraseFrame(id="e", why="asked")))
        if part:
            yield Raw(context_id.encode(), say("fine"))
    yield from (Raw(f"short-{number}".encode(), value) for value in (say("a secret"), ERASE))


ERASE = encode_frame(LLMContextEraseFrame(why="asked"))


def bursts():
    yield before(0)
    for number in itertools.count():
        yield [*behind(number), *before(number + 1)]


@pytest.mark.parametrize("small", [EACH_BY_ITSELF, None], ids=["each by itself", "as usual"])
def test_whatever_point_it_is_killed_at_each_conversation_is_erased_once(road, small):
    talk = bursts()
    with projector(road.settings, Plan(tell=True, member="it", small=small)) as running:
        road.publish(next(talk))
        road.until_idle(running)
        running.arm()
        road.publish(next(talk))
        road.until_idle(running)
        points = [one for one in running.points() if not one.startswith(ONCE)]
        assert running.stop() == 0
    assert any("erase_at" in one for one in points), points
    assert {"after lock", "before commit", "after commit"} <= set(points)
    for point in points:
        with projector(road.settings, Plan(point=point, member="it", small=small)) as running:
            road.until_idle(running)
            running.arm()
            road.publish(next(talk))
            assert running.ended(point) == -signal.SIGKILL, point
    with projector(road.settings, Plan(member="it")) as running:
        road.until_idle(running)
    records = road.records()
    stored = erasing.stored(road.address)
    assert stored == erasing.folded(records)
    assert len([one for one in stored if one.startswith("short")]) == len(points) + 1
    reference = road.folded_offline(records)
    assert erasing.dump(road.address) == erasing.dump(reference)


ONCE = ("SELECT projections", "SELECT frames.context_id, contexts")
"""What a projector does once when it has taken a partition over, or only for a head that is behind."""
