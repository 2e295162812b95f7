"""Recorded real conversations on real servers, published by several producers at once, two of which use other
partitioners."""

import importlib.util
import json
import threading

import psycopg
from tests.integration.test_foreign_clients import produce
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture

from frameledger.fold import Conversation, Folding
from frameledger.record import decode

PRODUCERS = 4
LOOKED_AT_CLOSELY = 2
"""The number of conversations that are read back at every version; the others only at their end."""


def test_all_of_them_read_back_whoever_published_them(pipeline, shared):
    conversations = [
        json.loads(line) for line in (shared / "data" / "real-conversations.jsonl").read_bytes().splitlines()
    ]
    canonical = canon(shared)
    values = {one["name"]: [json.dumps(frame).encode() for frame in one["frames"]] for one in conversations}
    with projector(pipeline.settings) as running:
        publish_side_by_side(pipeline, values)
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        for number, one in enumerate(conversations):
            stored = value_of(connection, "SELECT context_at(%s)", one["name"])
            assert [canonical(message) for message in stored["messages"]] == [
                canonical(message) for message in one["messages"]
            ], one["name"]
            if number < LOOKED_AT_CLOSELY:
                for version, context in enumerate(contexts(one["name"], values[one["name"]])):
                    assert value_of(connection, "SELECT context_at(%s, %s)", one["name"], version) == context
        assert value_of(connection, "SELECT count(*)::int FROM frames") == sum(map(len, values.values()))


def publish_side_by_side(pipeline, values):
    """Publish concurrently: each producer publishes the frames of its own conversations in turn; half of the producers
    are other clients than ours."""
    failed = []

    def publish(number):
        names = list(values)[number::PRODUCERS]
        longest = max(len(values[name]) for name in names)
        records = [
            Raw(name.encode(), values[name][place])
            for place in range(longest)
            for name in names
            if place < len(values[name])
        ]
        try:
            if number % 2:
                produce(pipeline, records)
            else:
                pipeline.publish(records)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def contexts(name, values):
    folding = Folding(Conversation.new(name))
    yield folding.conversation().context.to_wire()
    for value in values:
        folding.step(decode(value))
        yield folding.conversation().context.to_wire()


def canon(shared):
    """The canonical form of a message, as the shared material has it."""
    spec = importlib.util.spec_from_file_location("canon", shared / "conformance" / "canon.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.message
