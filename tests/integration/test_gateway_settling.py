"""What a person does over HTTP: answer a waiting call, resolve an ambiguous one, erase a conversation."""

import asyncio
from contextlib import ExitStack

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.support.gateway import with_app
from tests.support.killable import projector
from tests.support.pipeline import Raw, histories, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import look_again

START = {
    "type": "FunctionCallInProgressFrame",
    "function_name": "refund",
    "tool_call_id": "c1",
    "arguments": {"cents": 500},
    "cancel_on_interruption": False,
    "waiting": {"for": "a manager", "deadline": None},
}


def reading(pipeline):
    """Settings with the rights to read, and no more: what a gateway changes it says on the log."""
    address = make_conninfo(pipeline.address, options="-crole=frameledger_reader")
    return pipeline.settings.model_copy(update={"database_url": SecretStr(address)})


def test_a_waiting_call_is_answered_once(pipeline):
    async def settle(http):
        said = await http.post("/v1/contexts/shop/frames", json=START)
        assert [one["outcome"] for one in said.json()["frames"]] == ["applied"], said.text
        [waiting] = (await http.get("/v1/waiting")).json()["calls"]
        assert (waiting["context_id"], waiting["waiting_for"]) == ("shop", "a manager")
        path = "/v1/contexts/shop/calls/c1/result"
        wrongs = (b"", b"[]", b'{"result":1,"more":2}', b'{"opened_version":1}')
        for wrong in (*wrongs, b'{"result":1,"opened_version":true}', b'{"result":1,"opened_version":-1}'):
            bad = await http.post(path, content=wrong)
            assert (bad.status_code, bad.json()["type"]) == (400, "/problems/bad-parameter")
        first = await http.post(path, json={"result": {"approved": True}})
        assert first.status_code == 201, first.text
        assert (first.json()["settled"], first.json()["outcome"]) == ("answered", "applied")
        repeated = await http.post(path, json={"result": {"approved": True}})
        assert (repeated.status_code, repeated.json()) == (201, first.json())
        again = await http.post(path, json={"result": {"approved": False}})
        assert (again.status_code, again.json()["type"]) == (409, "/problems/already-settled")
        nobody = await http.post("/v1/contexts/shop/calls/c2/result", json={"result": 1})
        assert (nobody.status_code, nobody.json()["type"]) == (404, "/problems/not-found")
        [call] = (await http.get("/v1/contexts/shop/calls")).json()["calls"]
        assert (call["status"], call["result"]) == ("done", {"approved": True})

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(reading(pipeline), settle)
        pipeline.until_idle(running)
        assert running.stop() == 0


def test_a_result_with_a_key_is_settled_once_and_the_key_is_of_one_result(pipeline):
    async def settle(http):
        await http.post("/v1/contexts/shop/frames", json=START)
        path, key = "/v1/contexts/shop/calls/c1/result", {"Idempotency-Key": "k1"}
        first = await http.post(path, json={"result": "Granted."}, headers=key)
        again = await http.post(path, json={"result": "Granted."}, headers=key)
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        reused = await http.post(path, json={"result": "Refused."}, headers=key)
        assert (reused.status_code, reused.json()["type"]) == (422, "/problems/key-reused")
        other = await http.post(path, json={"result": "Granted."}, headers={"Idempotency-Key": "k2"})
        assert (other.status_code, other.json()["type"]) == (409, "/problems/already-settled")

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(reading(pipeline), settle)
        assert running.stop() == 0


@pytest.mark.parametrize("by", ["gateway", "command line"])
def test_an_answer_whose_place_is_gone_settles_its_call_and_says_so(pipeline, command, by):
    """The history was replaced while the call waited for a person: the answer settles the call and changes no
    message."""
    started = {**START, "cancel_on_interruption": True}
    update = {"type": "LLMMessagesUpdateFrame", "messages": [{"role": "user", "content": "Anew."}]}

    async def settle(http):
        begun = await http.post("/v1/contexts/shop/frames", json=started)
        assert {one["outcome"] for one in begun.json()["frames"]} == {"applied"}, begun.text
        assert (await http.post("/v1/contexts/shop/frames", json=update)).status_code == 201
        if by == "gateway":
            path = "/v1/contexts/shop/calls/c1/result"
            for _ in range(2):
                said = await http.post(path, json={"result": "Granted."})
                assert said.status_code == 201, said.text
                assert (said.json()["outcome"], said.json()["reason"]) == ("ignored", "place_replaced")
        else:
            words = ("calls", "answer", "shop", "c1", "--result", '"Granted."')
            answered = await asyncio.to_thread(command, pipeline.settings, *words)
            assert answered.exit_code == 0, answered.output
            assert "place_replaced" in answered.output
        [call] = (await http.get("/v1/contexts/shop/calls")).json()["calls"]
        assert (call["status"], call["result"]) == ("done", "Granted.")

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(reading(pipeline), settle)
        assert running.stop() == 0


def test_an_ambiguous_call_is_resolved(pipeline):
    async def settle(http):
        ambiguous = (await http.get("/v1/ambiguous")).json()["calls"]
        assert ambiguous
        for call in ambiguous:
            path = f"/v1/contexts/{call['context_id']}/calls/{call['tool_call_id']}/result"
            done = await http.post(path, json={"result": "It was paid."})
            assert (done.status_code, done.json()["settled"]) == (201, "resolved"), done.text
        assert (await http.get("/v1/ambiguous")).json()["calls"] == []

    with projector(pipeline.settings) as running:
        pipeline.publish(histories("x", ["ambiguous-payments"]))
        pipeline.until_idle(running)
        with_app(reading(pipeline), settle)
        assert running.stop() == 0


def test_a_result_that_names_the_call_settles_no_later_one_of_its_id(pipeline):
    """A model may use an id again while a person still has a page with the older call open."""

    async def settle(http):
        await http.post("/v1/contexts/shop/frames", json=START)
        path = "/v1/contexts/shop/calls/c1/result"
        [older] = (await http.get("/v1/waiting")).json()["calls"]
        meant = {"result": "Granted.", "opened_version": older["requested_version"]}
        settled = await http.post(path, json=meant)
        assert settled.status_code == 201
        await http.post("/v1/contexts/shop/frames", json=START)
        assert (await http.post(path, json=meant)).json() == settled.json()
        late = await http.post(path, json={**meant, "result": "Too late."})
        assert (late.status_code, late.json()["type"]) == (409, "/problems/already-settled")
        [newer] = (await http.get("/v1/waiting")).json()["calls"]
        assert newer["requested_version"] > older["requested_version"]
        unknown = await http.post(path, json={"result": 1, "opened_version": newer["requested_version"] + 9})
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/not-found")
        named = {"result": "Refused.", "opened_version": newer["requested_version"]}
        assert (await http.post(path, json=named)).json()["settled"] == "answered"

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(pipeline.settings, settle)
        assert running.stop() == 0


def test_an_erased_conversation_leaves_a_receipt(pipeline):
    async def erase(http):
        await http.post("/v1/contexts/gone/frames", json=START)
        # This read fills the cache; after the erasure the conversation must be gone all the same.
        assert (await http.get("/v1/contexts/gone")).status_code == 200
        assert (await http.delete("/v1/contexts/gone")).status_code == 400
        receipt = await http.delete("/v1/contexts/gone", params={"why": "asked for"})
        assert receipt.status_code == 200, receipt.text
        assert (receipt.json()["why"], receipt.json()["frame_count"]) == ("asked for", 1)
        assert receipt.json()["requested_by"] == "loopback"
        after = await http.get("/v1/contexts/gone")
        assert (after.status_code, after.json()["type"]) == (410, "/problems/erased")
        assert (await http.delete("/v1/contexts/nobody", params={"why": "-"})).status_code == 404

    with projector(pipeline.settings) as running:
        pipeline.until_idle(running)
        with_app(reading(pipeline), erase)
        assert running.stop() == 0


@pytest.mark.regression("gateway 115")
def test_who_erases_again_before_it_is_done_gets_the_receipt_of_what_was_deleted(pipeline):
    """No projector runs meanwhile, so the client is told to send its request again, and does."""

    async def erase(http):
        path = "/v1/contexts/gone"
        asked = [asyncio.create_task(http.delete(path, params={"why": "first"}))]
        while len(await asyncio.to_thread(pipeline.records)) < 2:
            await look_again()
        asked.append(asyncio.create_task(http.delete(path, params={"why": "again"})))
        while len(await asyncio.to_thread(pipeline.records)) < 3:
            await look_again()
        last = await asyncio.to_thread(stack.enter_context, projector(pipeline.settings))
        receipts = [(await one).json() for one in asked]
        assert [(one["why"], one["frame_count"]) for one in receipts] == [("first", 1)] * 2
        gone = (await http.get(path)).json()
        assert (gone["receipt"]["why"], gone["receipt"]["frames"]) == ("first", 1)
        return last

    with projector(pipeline.settings) as running, ExitStack() as stack:
        pipeline.publish([Raw(b"gone", b'{"type":"LLMRunFrame"}')])
        pipeline.until_idle(running)
        assert running.stop() == 0
        last = with_app(reading(pipeline), erase)
        pipeline.until_idle(last)
        assert last.stop() == 0
