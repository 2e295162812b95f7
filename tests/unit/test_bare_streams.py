"""The baseline of live streams stops them when asked to, without errors."""

import json
import signal
import subprocess
import sys

import httpx
import pytest
from tests.bounds import PROGRAM

from frameledger_services.bench.road.stream import context_ids
from frameledger_services.embedded import ports

STREAMS, CONTEXTS, EACH = 3, 2, 4


@pytest.mark.parametrize("leave_first", [True, False], ids=["clients leave first", "it stops first"])
def test_it_stops_without_a_word_of_its_streams(leave_first):
    port = ports.choose(0)
    words = [str(one) for one in (port, STREAMS, CONTEXTS, EACH, 1000, 300)]
    bare = subprocess.Popen(
        [sys.executable, "-m", "frameledger_services.bench.gateway.bare_streams", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    names = [*context_ids(CONTEXTS), context_ids(CONTEXTS)[0]]
    transport = httpx.HTTPTransport(retries=20)
    try:
        with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=PROGRAM) as http:
            streams = [http.stream("GET", f"/v1/contexts/{name}/stream") for name in names]
            lines = [stream.__enter__().iter_lines() for stream in streams]
            for of_stream in lines:
                while next(of_stream) != f"id: {EACH}":
                    pass
            if leave_first:
                for stream in streams:
                    stream.__exit__(None, None, None)
            bare.send_signal(signal.SIGTERM)
            out, errors = bare.communicate(timeout=PROGRAM)
            if not leave_first:
                for stream in streams:
                    stream.__exit__(None, None, None)
    finally:
        bare.kill()
        bare.wait(PROGRAM)
    assert errors == ""
    assert [len(times) for times in json.loads(out)] == [EACH] * CONTEXTS
