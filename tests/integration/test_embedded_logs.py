"""The logs of a running `up` are bounded: those of its processes, and its own in the background."""

import asyncio

import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.integration.test_embedded_full_disk import NOBODY, Told
from tests.support.polling import look_again

from frameledger_services.embedded import command_programs, program, stack
from frameledger_services.embedded.record import Phase
from frameledger_services.settings import Settings


@pytest.mark.regression("journey 75")
def test_the_logs_of_a_running_up_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(program, "LARGEST_LOG", 10)
    settings = Settings(
        data_dir=tmp_path,
        kafka_bootstrap_servers=NOBODY,
        database_url=SecretStr(f"postgresql://nobody@{NOBODY}/nothing"),
    )
    own = program.own_log(tmp_path)

    async def life():
        told = Told()
        command = command_programs.Command("timekeeper", ("run", "timekeeper"))
        running = asyncio.create_task(stack.up(settings, services=[command], on_change=told))
        await told.until(lambda: told.record.phase is Phase.READY)
        own.write_text("a line of our own\n", encoding="ascii")
        # The timekeeper says at each start that no database is configured.
        for log in (own, tmp_path / "logs" / "timekeeper.log"):
            while not program.rotated(log).exists():
                await look_again()
        running.cancel()
        await asyncio.wait([running])

    async def in_time():
        async with asyncio.timeout(ON_SERVERS):
            await life()

    asyncio.run(in_time())
    assert program.rotated(own).read_text(encoding="ascii") == "a line of our own\n"
    assert "No database is configured" in program.rotated(tmp_path / "logs" / "timekeeper.log").read_text()
