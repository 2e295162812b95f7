"""How long `up` waits for a service that it stops."""

import pytest

from frameledger_services.embedded.command_programs import Command, CommandPrograms
from frameledger_services.settings import Settings


@pytest.mark.regression("worker 23")
@pytest.mark.parametrize("drains", [{}, {"work_drain_secs": 300.0}, {"gateway_drain_secs": 300.0}])
def test_a_service_is_not_killed_while_it_drains(drains, tmp_path):
    settings = Settings(**drains)
    (tmp_path / "run").mkdir()
    one = CommandPrograms(settings, tmp_path, {}).program(Command("inference", ("run", "x")))
    assert one.stop_within > settings.work_drain_secs + settings.work_grace_secs
    assert one.stop_within > settings.gateway_drain_secs
