"""Invalid input over HTTP ends like the same input through Kafka, and never as a server error."""

import asyncio

from tests.integration.test_bad_input import STORED, UNIT, UNKNOWN, VALUES
from tests.support.gateway import with_app
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

CASES = {name: case for name, case in {**UNIT, **VALUES}.items() if case[0] is not None}
"""A record may have no value; a request always has a body."""

# It has no id, and adding one makes it too large.
CASES["8 MiB"] = (CASES["8 MiB"][0], "too_large")
# Here an array is several frames.
CASES["an array"] = (CASES["an array"][0], STORED)


async def ended(http, number, value):
    """Returns the outcome of these bytes, in the terms of the test through Kafka."""
    # With many concurrent requests an append may take longer than the default wait.
    path, patient = f"/v1/contexts/value-{number}/frames", {"Prefer": "wait=30"}
    answer = await http.post(path, content=value, headers=patient)
    if answer.status_code == 201:
        [frame] = answer.json()["frames"]
        return STORED if frame["outcome"] in ("applied", "ignored") else frame["outcome"]
    assert answer.status_code in (400, 413), answer.text
    assert answer.json()["type"] in ("/problems/bad-frame", "/problems/too-large"), answer.text
    return "too_large" if answer.status_code == 413 else answer.json()["code"]


def test_bytes_end_as_they_would_through_kafka(pipeline):
    async def append(http):
        some = asyncio.Semaphore(8)

        async def one(number, value):
            async with some:
                return await ended(http, number, value)

        found = await asyncio.gather(
            *(one(number, value) for number, (value, _) in enumerate(CASES.values()))
        )
        return dict(zip(CASES, found, strict=True))

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        found = with_app(pipeline.settings.model_copy(update={"gateway_burst": 10_000}), append)
        pipeline.until_idle(running)
        assert running.stop() == 0
    assert len(CASES) > 80
    wrong = {name: (end, CASES[name][1]) for name, end in found.items() if end != CASES[name][1]}
    assert wrong == {}
    assert {UNKNOWN, STORED, "not_json", "bad_id"} <= {*found.values()}
    pipeline.check(every=50)
