"""The gateway conforms to its OpenAPI document: requests are generated from it, and each response is validated against
it."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.databases import made as database
from tests.support.gateway import Gateway, running
from tests.support.killable import projector
from tests.support.pipeline import Raw, histories, made

from frameledger_services.embedded import ports

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

EXAMPLES = 4
"""How many requests are tried for each operation, valid and invalid ones mixed."""

KNOWN = ("barge-in-x", "parallel-tools-x", "acme/1")


@pytest.fixture(scope="module")
def gateway(kafka, database_server, migrated_template) -> Iterator[Gateway]:
    """A gateway on real servers with some conversations, and a projector that stores what is appended."""
    with database(database_server, template=migrated_template) as (_, address):
        pipeline = made(kafka.bootstrap_servers, address, None)
        with projector(pipeline.settings) as projecting:
            records = histories("x", ["barge-in", "parallel-tools"])
            pipeline.publish([*records, Raw(b"acme/1", b'{"type":"LLMRunFrame"}')])
            pipeline.until_idle(projecting)
            also = {
                "gateway_port": str(ports.choose(0)),
                "gateway_requests_per_sec": "1000000",
                "gateway_burst": "1000000",
            }
            # A gateway needs to read the tables and no more, whatever it is asked for: what it changes is on the log.
            also["database_url"] = make_conninfo(address, options="-crole=frameledger_reader")
            with running(pipeline.settings, **also) as gateway:
                yield gateway
            assert projecting.stop() == 0


def test_every_answer_is_one_that_the_document_names(gateway):
    schema = schemathesis.openapi.from_url(f"{gateway.address}/openapi.json")
    asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/stream"):
            # It does not end; its tests read it.
            continue
        positive = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        negative = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

        @given(case=positive | negative, context_id=st.sampled_from(KNOWN) | st.none())
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def answers(case, context_id):
            nonlocal asked
            asked += 1
            if context_id is not None and "context_id" in case.path_parameters:
                case.path_parameters["context_id"] = quote(context_id, safe="")
            case.call_and_validate(checks=CHECKS)

        answers()
    assert asked > 100
