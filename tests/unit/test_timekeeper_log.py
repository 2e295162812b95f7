"""The timekeeper's access to the log, while brokers do not answer."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import KafkaConnectionError
from tests.bounds import IN_PROCESS

from frameledger_services.settings import Settings
from frameledger_services.timekeeper import log
from frameledger_services.timekeeper.log import SettlementLog


@pytest.mark.regression("fault 157")
def test_a_look_that_fails_in_between_leaves_no_client_open(monkeypatch):
    opened: list[bool] = []
    closed: list[bool] = []
    answers: list[dict[int, int]] = []

    class Probe:
        async def ends(self, partitions, until):
            return dict.fromkeys(partitions, 7)

    @asynccontextmanager
    async def open_probe(settings, topic, *, uncommitted):
        if not uncommitted and len(opened) < 3:
            raise KafkaConnectionError("away")
        opened.append(uncommitted)
        try:
            yield Probe()
        finally:
            closed.append(uncommitted)

    monkeypatch.setattr(log, "open_probe", open_probe)

    async def scenario():
        async with asyncio.timeout(IN_PROCESS), SettlementLog(Settings()) as timekeepers:
            for _ in range(2):
                with pytest.raises(KafkaConnectionError):
                    await timekeepers.ends([0])
            answers.append(await timekeepers.ends([0]))
            assert len(opened) - len(closed) == 2

    asyncio.run(scenario())
    assert answers == [{0: 7}]
    assert sorted(opened) == sorted(closed)
