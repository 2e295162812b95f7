"""Appending by HTTP on a real log and a real database, and reading the outcomes."""

import json

import psycopg
import pytest
from tests.support.batches import value_of
from tests.support.gateway import with_app
from tests.support.killable import projector
from tests.support.pipeline import PARTITIONS, own_pipeline  # noqa: F401  # a fixture

from frameledger.partition import partition_for

ASK = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Is there a night train?"}]}
ANSWER = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "assistant", "content": "Yes, at 22:40."}]}


def test_what_is_appended_is_read_back_at_every_version(pipeline):
    async def talk(http):
        first = await http.post("/v1/contexts/acme%2Fcall-1/frames", json={**ASK, "id": "one"})
        assert first.status_code == 201, first.text
        assert first.headers["etag"] == '"1"'
        assert first.json() == {
            "context_id": "acme/call-1",
            "version": 1,
            "completed": False,
            "frames": [
                {
                    "id": "one",
                    "place": f"{pipeline.settings.topic_prefix}frames:1:{partition_for(b'acme/call-1', PARTITIONS)}:0",
                    "version": 1,
                    "outcome": "applied",
                    "reason": None,
                    "duplicate": False,
                }
            ],
        }
        second = await http.post(
            "/v1/contexts/acme%2Fcall-1/frames",
            content=json.dumps(ANSWER) + "\n\n" + json.dumps({"type": "Wink"}),
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert [one["outcome"] for one in second.json()["frames"]] == ["applied", "unknown"]
        assert second.json()["completed"] is True
        assert second.headers["location"] == "/v1/contexts/acme%2Fcall-1"
        now = await http.get(second.headers["location"])
        assert now.status_code == 200
        assert now.headers["etag"] == '"3"'
        assert now.json()["messages"] == ASK["messages"] + ANSWER["messages"]
        assert now.json()["version"] == now.json()["newest"] == 3
        same = await http.get(second.headers["location"], headers={"If-None-Match": '"3"'})
        assert (same.status_code, same.content) == (304, b"")
        head = await http.head(second.headers["location"])
        assert (head.status_code, head.headers["etag"], head.content) == (200, '"3"', b"")
        known = {"If-None-Match": first.headers["etag"]}
        before = await http.get("/v1/contexts/acme%2Fcall-1", params={"version": 1}, headers=known)
        assert (before.status_code, before.headers["etag"]) == (200, '"1.n3"')
        assert (before.json()["messages"], before.json()["newest"]) == (ASK["messages"], 3)
        at = await http.get("/v1/contexts/acme%2Fcall-1", params={"at": "1999-01-01T00:00:00Z"})
        assert (at.json()["version"], at.json()["messages"]) == (0, [])
        beyond = await http.get("/v1/contexts/acme%2Fcall-1", params={"version": 4})
        assert (beyond.status_code, beyond.json()["newest"]) == (404, 3)
        assert beyond.json()["type"] == "/problems/no-such-version"
        nobody = await http.get("/v1/contexts/nobody")
        assert nobody.json()["type"] == "/problems/no-such-context"

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(pipeline.settings, talk)
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()


def test_a_frame_with_an_id_goes_to_the_log_byte_for_byte(pipeline):
    strange = b'{ "type":"LLMRunFrame",\t"id" : "a", "mine":1.0e2, "text":"\\u00fc" }'

    async def append(http):
        answer = await http.post(
            "/v1/contexts/bytes/frames",
            content=b"[" + strange + b" , " + strange.replace(b'"a"', b'"b"') + b"]",
            headers={"Content-Type": "application/json", "Prefer": "respond-async"},
        )
        assert answer.status_code == 202, answer.text
        assert answer.headers["location"] == "/v1/contexts/bytes/frames?id=a&id=b"
        return answer.json()

    answer = with_app(pipeline.settings, append)
    records = pipeline.records()
    assert [one.value for one in records] == [strange, strange.replace(b'"a"', b'"b"')]
    assert [one["place"] for one in answer["frames"]] == [
        f"{one.topic}:1:{one.partition}:{one.offset}" for one in records
    ]


def test_a_request_that_is_sent_again_counts_once(pipeline):
    async def append(http):
        for number in range(2):
            named = await http.post("/v1/contexts/again/frames", json={**ASK, "id": "one"})
            assert named.json()["frames"][0]["duplicate"] is bool(number)
            keyed = await http.post(
                "/v1/contexts/again/frames", json=[ASK, ANSWER], headers={"Idempotency-Key": '"k-1"'}
            )
            assert keyed.status_code == 201
            assert [one["duplicate"] for one in keyed.json()["frames"]] == [bool(number)] * 2
            assert keyed.json()["version"] == 3
        other = await http.post(
            "/v1/contexts/again/frames", json=[ANSWER], headers={"Idempotency-Key": "k-1"}
        )
        assert other.status_code == 422
        assert other.json()["type"] == "/problems/key-reused"

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(pipeline.settings, append)
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT version FROM contexts WHERE context_id = 'again'") == 3


@pytest.mark.regression("gateway 62")
def test_a_key_names_frames_by_their_places_and_not_the_request(pipeline):
    async def append(http):
        answers = [
            await http.post("/v1/contexts/places/frames", json=frames, headers={"Idempotency-Key": "k-1"})
            for frames in ([ASK], [ASK, ANSWER], [ASK], [ASK, ASK])
        ]
        assert [one.status_code for one in answers] == [201, 201, 201, 422]
        told = [[frame["duplicate"] for frame in one.json()["frames"]] for one in answers[:3]]
        assert told == [[False], [True, False], [True]]

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(pipeline.settings, append)
        assert running.stop() == 0


def test_an_expected_version_is_decided_by_the_fold(pipeline):
    summary = {"type": "LLMMessagesUpdateFrame", "messages": [{"role": "user", "content": "Short."}]}

    async def append(http):
        await http.post("/v1/contexts/expected/frames", json=[ASK, {"type": "LLMTextFrame", "text": "late"}])
        good = await http.post("/v1/contexts/expected/frames", json=summary, headers={"If-Match": '"1"'})
        # The text that came after version 1 changed nothing in the context.
        assert good.status_code == 201, good.text
        bad = await http.post("/v1/contexts/expected/frames", json=summary, headers={"If-Match": '"1"'})
        assert bad.status_code == 412
        assert bad.json()["newest"] == 4
        for headers, frames in ({"If-Match": "1"}, summary), ({"If-Match": '"4"'}, [summary] * 2):
            wrong = await http.post("/v1/contexts/expected/frames", json=frames, headers=headers)
            assert (wrong.status_code, wrong.json()["type"]) == (400, "/problems/bad-parameter")

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(pipeline.settings, append)
        assert running.stop() == 0


def test_nothing_of_a_request_with_a_bad_frame_is_published(pipeline):
    async def append(http):
        broken = await http.post("/v1/contexts/bad/frames", json=[ASK, {"type": 5}])
        assert broken.status_code == 400
        assert broken.json()["frame"] == 2
        assert broken.json()["code"] == "no_type"
        many = await http.post("/v1/contexts/bad/frames", json=[ASK] * 501)
        assert many.json()["type"] == "/problems/too-large"
        large = await http.post("/v1/contexts/bad/frames", content=b" " * (8 * 1024 * 1024 + 1))
        assert large.json()["type"] == "/problems/too-large"
        form = await http.post("/v1/contexts/bad/frames", data={"a": "b"})
        assert form.json()["type"] == "/problems/unsupported-media-type"
        for empty in (b"[]", b"", b"[{]"):
            nothing = await http.post("/v1/contexts/bad/frames", content=empty)
            assert nothing.json()["type"] == "/problems/bad-frame", nothing.text

    with_app(pipeline.settings, append)
    assert pipeline.records() == []


def test_what_was_appended_is_asked_for_again_by_ids_and_places(pipeline):
    path = "/v1/contexts/later/frames"
    wink = {"type": "LLMTextFrame", "text": "late"}
    cause = {"Frameledger-Causation-Id": "one", "Prefer": "respond-async"}

    async def append(http):
        first = await http.post(path, json=[{**ASK, "id": "one"}], headers={"Prefer": "wait=1"})
        # No projector is running yet.
        assert first.status_code == 202
        assert "no projector" in first.json()["detail"]
        second = await http.post(path, json=[{**wink, "id": "two"}, {**ASK, "id": "one"}], headers=cause)
        other = await http.post(path, json=[{**wink, "id": "one"}], headers={"Prefer": "respond-async"})
        frames = [one for answer in (first, second, other) for one in answer.json()["frames"]]
        asked = await http.post(f"{path}/outcomes", json={"frames": frames}, headers={"Prefer": "wait=1"})
        assert (asked.status_code, asked.json()["frames"]) == (202, frames)
        at_once = await http.post(
            f"{path}/outcomes", json={"frames": frames}, headers={"Prefer": "respond-async"}
        )
        assert (at_once.status_code, at_once.json()["frames"]) == (202, frames)
        return frames

    async def ask(http):
        outcomes = await http.post(f"{path}/outcomes", json={"frames": frames}, headers={"Prefer": "wait=60"})
        assert outcomes.status_code == 200, outcomes.text
        at_once = await http.post(
            f"{path}/outcomes", json={"frames": frames}, headers={"Prefer": "respond-async"}
        )
        assert (at_once.status_code, at_once.json()) == (200, outcomes.json())
        wrongs: list[dict] = [{}, {"frames": []}, {"frames": [{"id": "one", "place": "elsewhere:1:0:0"}]}]
        for wrong in wrongs:
            refused = await http.post(f"{path}/outcomes", json=wrong)
            assert refused.json()["type"] == "/problems/bad-parameter"
        return outcomes.json()

    frames = with_app(pipeline.settings, append)
    with projector(pipeline.settings) as running:
        told = with_app(pipeline.settings, ask)
        assert running.stop() == 0
    assert told["version"] == 2
    assert [(one["id"], one["place"]) for one in told["frames"]] == [
        (one["id"], one["place"]) for one in frames
    ]
    assert [(one["version"], one["outcome"], one["reason"], one["duplicate"]) for one in told["frames"]] == [
        (1, "applied", None, False),
        (2, "ignored", "no_open_response", False),
        (1, "applied", None, True),
        (None, "rejected", "id_reused", False),
    ]
    assert [dict(one.headers).get("fl_causation_id") for one in pipeline.records()] == [
        None,
        b"one",
        b"one",
        None,
    ]
