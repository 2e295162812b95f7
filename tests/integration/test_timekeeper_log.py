"""The timekeeper's access to the log: a rejected frame blocks no other frame."""

import asyncio
from uuid import UUID

import pytest
from aiokafka import AIOKafkaProducer
from tests.bounds import ON_SERVERS
from tests.support.polling import look_again

from frameledger.frames import FunctionCallInProgressFrame, UserStoppedSpeakingFrame
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.timekeeper.log import SettlementLog
from frameledger_services.timekeeper.settling import Settlement

LARGER_THAN_ANY_FRAME = 9 * 2**20
LARGER_THAN_A_PRODUCER_TAKES = 80 * 2**20


def start(size):
    frame = FunctionCallInProgressFrame(
        id=f"start-{size}", function_name="f", tool_call_id="t", arguments="x" * size
    )
    return Settlement("call_start", f"large-{size}", frame, UUID(int=1))


def stop(context_id):
    return Settlement("user_stop", context_id, UserStoppedSpeakingFrame(id=f"stop-{context_id}"), UUID(int=1))


def test_a_frame_that_is_too_large_is_left_out_and_the_others_are_published(log):
    async def scenario():
        async with asyncio.timeout(ON_SERVERS), SettlementLog(log) as timekeepers:
            for size in LARGER_THAN_ANY_FRAME, LARGER_THAN_A_PRODUCER_TAKES:
                before = sum((await timekeepers.ends(range(4))).values())
                await timekeepers.publish([stop("a"), start(size), stop("b"), stop("c")])
                # Three frames; those that were sent together with the large one are on the log twice.
                assert 3 <= sum((await timekeepers.ends(range(4))).values()) - before <= 6

    asyncio.run(scenario())


@pytest.mark.regression("fault 122")
def test_a_partition_is_hidden_while_nobody_can_read_what_is_behind_an_open_transaction(log):
    """The timekeeper's own frames are behind it too, and would be published again at each sweep."""

    async def scenario():
        topic, at_home = TopicNames(log.topic_prefix).frames, {"key": b"ctx", "partition": 1}
        theirs = AIOKafkaProducer(
            bootstrap_servers=log.kafka_bootstrap_servers, transactional_id=f"{log.topic_prefix}theirs"
        )
        await theirs.start()
        seen = []
        try:
            async with asyncio.timeout(ON_SERVERS), SettlementLog(log) as timekeepers:

                async def look():
                    ends = await timekeepers.ends(range(4))
                    seen.append((ends[1], set(timekeepers.hidden)))

                await look()
                await look()
                for _ in range(2):
                    await theirs.begin_transaction()
                    await theirs.send_and_wait(topic, b"{}", **at_home)
                    await look()
                    await look()
                    await theirs.commit_transaction()
                    # The commit marker is written a moment later.
                    end = seen[-1][0]
                    while (await timekeepers.ends(range(4)))[1] < end + 2:
                        await look_again()
                await look()
        finally:
            await theirs.stop()
        return seen

    # In both transactions the readable end is where it was at the check before.
    assert asyncio.run(scenario()) == [
        (0, set()),
        (0, set()),
        (0, {1}),
        (0, {1}),
        (2, {1}),
        (2, {1}),
        (4, set()),
    ]


@pytest.mark.regression("fault 122")
def test_a_partition_in_which_transactions_follow_each_other_is_not_hidden(log):
    async def scenario():
        topic, at_home = TopicNames(log.topic_prefix).frames, {"key": b"ctx", "partition": 1}
        first, second = (
            AIOKafkaProducer(
                bootstrap_servers=log.kafka_bootstrap_servers,
                transactional_id=f"{log.topic_prefix}{name}",
            )
            for name in ("first", "second")
        )
        await first.start()
        await second.start()
        try:
            async with asyncio.timeout(ON_SERVERS), SettlementLog(log) as timekeepers:
                await first.begin_transaction()
                await first.send_and_wait(topic, b"{}", **at_home)
                await timekeepers.ends(range(4))
                await second.begin_transaction()
                await second.send_and_wait(topic, b"{}", **at_home)
                await first.commit_transaction()
                while (await timekeepers.ends(range(4)))[1] == 0:
                    assert timekeepers.hidden == {1}
                    await look_again()
                # The readable end has moved on to the second transaction.
                moved = timekeepers.hidden
                await timekeepers.ends(range(4))
                return moved, timekeepers.hidden
        finally:
            await first.stop()
            await second.stop()

    assert asyncio.run(scenario()) == (set(), {1})
