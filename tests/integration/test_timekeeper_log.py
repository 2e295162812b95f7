"""The timekeeper's access to the log: a rejected frame blocks no other frame."""

import asyncio
from uuid import UUID

from tests.bounds import ON_SERVERS

from frameledger.frames import FunctionCallInProgressFrame, UserStoppedSpeakingFrame
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
                # Three, and those of them that were sent with the large one come twice.
                assert 3 <= sum((await timekeepers.ends(range(4))).values()) - before <= 6

    asyncio.run(scenario())
