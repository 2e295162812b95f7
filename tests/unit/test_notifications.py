"""The payloads of projectors' notifications are read as they were written; others are ignored."""

import asyncio

import pytest

from frameledger_services.store import progress_channel
from frameledger_services.store.progress_channel import Notification


class Connection:
    async def execute(self, _, parameters):
        self.payload = parameters[1]


def written(offsets, *context_ids):
    connection = Connection()
    asyncio.run(progress_channel.notify_progress(connection, "frames", offsets, *context_ids))
    assert len(connection.payload.encode()) < 8_000
    return progress_channel.read_notification(connection.payload)


@pytest.mark.parametrize("context_ids", [[], ["a"], ["a", "ü/1", "a b # c"]])
def test_what_is_notified_is_read_again(context_ids):
    conversations = frozenset(map(progress_channel.hash_of, context_ids))
    assert len(conversations) == len(context_ids)
    assert written({0: 7, 12: 9}, context_ids) == Notification("frames", {0: 7, 12: 9}, conversations)
    assert written({0: 7}) == Notification("frames", {0: 7}, None)


def test_what_is_too_much_is_left_out_the_conversations_first():
    many = [str(number) for number in range(progress_channel.MAX_CONVERSATIONS + 1)]
    for partitions in (1, 500):
        offsets = dict.fromkeys(range(partitions), 1_234_567)
        assert len(written(offsets, many[1:]).conversations or ()) == len(many) - 1
        assert written(offsets, many) == Notification("frames", offsets, None)
    assert written(dict.fromkeys(range(2_000), 7), ["a"]) == Notification()


@pytest.mark.parametrize(
    ("payload", "topic"),
    [("", ""), ("frames", "frames"), ("frames a:b # 00000000", "frames"), (" #", ""), ("#", "#")],
)
def test_what_says_nothing_of_offsets_says_nothing_of_conversations(payload, topic):
    assert progress_channel.read_notification(payload) == Notification(topic, {}, None)
