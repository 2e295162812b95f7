"""The brokers of a cluster return at other addresses, which only the bootstrap servers know."""

from contextlib import ExitStack

import pytest
from tests.support.answerers import frame
from tests.support.formatted_broker import formatted
from tests.support.killable import projector
from tests.support.pipeline import Raw, made

from frameledger_services.embedded import kafka, ports


@pytest.mark.long
@pytest.mark.regression("fault 313")
def test_a_projector_finds_brokers_that_have_other_addresses_than_before(tmp_path, database):
    before, after = ports.choose(0), ports.choose(0)
    directory = formatted(tmp_path)
    with ExitStack() as stack:
        with kafka.running(directory, port=before):
            pipeline = made(f"{ports.HOST}:{before},{ports.HOST}:{after}", database, None)
            projects = stack.enter_context(projector(pipeline.settings))
            pipeline.publish([Raw(b"ctx", frame("LLMRunFrame"))])
            pipeline.until_idle(projects)
        with kafka.running(directory, port=after):
            pipeline.publish([Raw(b"ctx", frame("LLMRunFrame"))])
            pipeline.until_idle(projects)
            pipeline.until("SELECT version = 2 FROM contexts")
            assert projects.stop() == 0
