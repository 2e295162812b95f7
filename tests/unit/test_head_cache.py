"""The cache of heads is bounded by memory; heads remember frame ids."""

import json
import tracemalloc
from uuid import UUID

import pytest
from tests.support.tiers import long

from frameledger import stored
from frameledger.decoding import decode
from frameledger.evolve import evolve
from frameledger.ids import ContextId
from frameledger.record import Record
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.batch_fold import BatchFold, StoredIds
from frameledger_services.projector.decoded import decode_record
from frameledger_services.projector.head import REMEMBERED_IDS, Head
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.ownership import ProjectorTopics

TOPICS = ProjectorTopics("llm.frames", "llm.frames.dlq", effect_topics(TopicNames("")), partitions=1)

HELLO = {"type": "TranscriptionFrame", "user_id": "u", "timestamp": "", "text": "Hello"}


def tool(number):
    arguments = {
        f"argument_{at}": {"type": "string", "description": f"What {number} needs as number {at}"}
        for at in range(8)
    }
    about = "Does something useful with what it is given, and says what came of it. " * 4
    parameters = {"type": "object", "properties": arguments, "required": ["argument_0"]}
    return {
        "type": "function",
        "function": {"name": f"tool_{number}", "description": about, "parameters": parameters},
    }


TOOLS = {"type": "LLMSetToolsFrame", "tools": [tool(number) for number in range(40)]}
SETTINGS = {"type": "LLMUpdateSettingsFrame", "settings": {"instructions": "x" * 20_000}}
LIMIT = 1024 * 1024


def folded(number, *frames):
    head = Head.new(ContextId(f"ctx-{number}"))
    for frame in frames:
        head.state = evolve(head.state, decode(json.dumps(frame).encode())).state
    return head


@pytest.mark.regression("fault 13")
@pytest.mark.parametrize("frames", [[HELLO], long([TOOLS]), [SETTINGS], [HELLO, TOOLS, SETTINGS]], ids=len)
@pytest.mark.parametrize("is_loaded", [False, True], ids=["folded", "loaded"])
def test_the_heads_in_memory_take_no_more_than_they_may(frames, is_loaded):
    cache = HeadCache(LIMIT)
    folded(0, *frames)  # what is made once, for all
    tracemalloc.start()
    try:
        for number in range(500 if frames == [HELLO] else 25):
            head = folded(number, *frames)
            if is_loaded:
                dumped = stored.dump(head.state)
                head.state, head.state_bytes = stored.load(dumped), len(dumped)
            cache.put([head])
        assert tracemalloc.get_traced_memory()[0] < 1.1 * LIMIT
        assert len(cache) > 1
    finally:
        tracemalloc.stop()


@pytest.mark.regression("fault 13")
def test_a_frame_that_changes_no_terms_has_nothing_measured(monkeypatch):
    cache, head = HeadCache(LIMIT), folded(0, TOOLS)
    cache.put([head])
    weight = head.weight()

    def dump(_):
        raise AssertionError("measured again")

    monkeypatch.setattr(stored, "dump", dump)
    head.state = evolve(head.state, decode(json.dumps(HELLO).encode())).state
    cache.put([head])
    assert head.weight() >= weight


def test_a_frame_that_is_repeated_often_is_known_without_a_query():
    head = Head.new(ContextId("talk"))

    def folds(number, frame_id, stored_ids=None):
        value = json.dumps({**HELLO, "id": str(frame_id)}).encode()
        batch = BatchFold({"talk": head}, TOPICS, stored_ids)
        batch.fold([decode_record(Record("llm.frames", 0, number, b"talk", value))])
        return batch.duplicates

    ids = [UUID(int=number) for number in range(2 * REMEMBERED_IDS)]
    for number, frame_id in enumerate(ids):
        assert folds(2 * number, frame_id) == 0
        # The fast path: it has no stored ids to look in.
        assert folds(2 * number + 1, ids[0]) == 1
    # A repetition that a query found is known from then on.
    again = ids[1]
    value = json.dumps({**HELLO, "id": str(again)}).encode()
    assert folds(5_000, again, StoredIds({("talk", again): value}, {})) == 1
    assert folds(5_001, again) == 1
