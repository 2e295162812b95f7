"""A conversation is erased while a projector has it in memory: later frames start it again."""

import asyncio

import psycopg
import pytest
from tests.support.batches import (
    Log,
    Projecting,
    both_writers,  # noqa: F401  # a fixture
    value_of,
)

from frameledger_services.projector.ownership import ProjectorFencedError

RUN = b'{"type":"LLMRunFrame"}'
END = b'{"type":"EndFrame"}'


def erased_in_between(database, erase, first_version):
    """Store three frames and erase them: a projector that has the conversation in memory must be fenced, and another
    one stores the later frames, from this version on."""
    log = Log()
    for value in (RUN, RUN, END, RUN, RUN, RUN, RUN):
        log.add("ctx", value)

    async def run():
        async with Projecting(database) as projecting:
            await projecting.store(log.records[:3])
            with psycopg.connect(database) as operator:
                operator.execute(erase)
            with pytest.raises(ProjectorFencedError):
                await projecting.store(log.records[3:4])
            with psycopg.connect(database) as connection:
                assert value_of(connection, "SELECT count(*) FROM frames") == 0
        async with Projecting(database) as again:
            await again.store(log.records[3:4])
            await again.store(log.records[4:])

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        versions = connection.execute("SELECT version FROM frames ORDER BY 1").fetchall()
        assert versions == [(first_version + one,) for one in range(4)]
        assert value_of(connection, "SELECT version FROM contexts") == first_version + 3
        assert value_of(connection, "SELECT intact FROM verify_chain('ctx')") is True
        assert value_of(connection, "SELECT count(*) FROM rejected_frames") == 0


@pytest.mark.regression("fault 3")
@pytest.mark.usefixtures("both_writers")
def test_erasing_fences_the_projector_that_remembers_the_conversation(database):
    erased_in_between(database, "SELECT erase('ctx', 'the user asked')", first_version=4)


@pytest.mark.regression("fault 3")
@pytest.mark.usefixtures("both_writers")
def test_who_finds_a_conversation_gone_without_a_fence_fences_itself(database):
    without_a_fence = """
        SET session_replication_role = replica;
        DELETE FROM messages; DELETE FROM runs; DELETE FROM eras; DELETE FROM frames; DELETE FROM contexts;
        DELETE FROM context_settings
    """
    erased_in_between(database, without_a_fence, first_version=1)


@pytest.mark.regression("fault 3")
def test_erasing_fences_nobody_in_other_partitions(database):
    log = Log()
    for number in range(12):
        log.add(f"ctx-{number}", RUN)
    first = log.records[0]

    async def run():
        async with Projecting(database) as projecting:
            await projecting.store(log.records)
            with psycopg.connect(database) as operator:
                operator.execute("SELECT erase('ctx-0', 'the user asked')")
            log.add("ctx-0", RUN)
            for number in range(1, 12):
                log.add(f"ctx-{number}", RUN)
            later = log.records[12:]
            await projecting.store([record for record in later if record.partition != first.partition])
            with pytest.raises(ProjectorFencedError) as fenced:
                await projecting.store([record for record in later if record.partition == first.partition])
            assert fenced.value.partitions == {first.partition}

    asyncio.run(run())
