"""The projector's process: its log lines and errors when another projector has its instance id."""

import asyncio

import pytest

from frameledger_services.projector import service
from frameledger_services.projector.instance_id import DuplicateInstanceError
from frameledger_services.settings import Settings


def test_a_taken_name_is_logged_as_such_and_ends_the_process_the_second_time(monkeypatch, caplog):
    async def duplicate(*arguments):
        raise DuplicateInstanceError("Another projector is called it-1.")

    monkeypatch.setattr(service, "_project_or_raise_one", duplicate)
    with pytest.raises(DuplicateInstanceError):
        asyncio.run(service.serve(Settings(), asyncio.Event()))
    assert ["projector.name_taken" in one for one in caplog.messages] == [True]
