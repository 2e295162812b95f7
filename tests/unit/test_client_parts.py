"""The parts of the client that need no server."""

import asyncio
import copy
import gc
import itertools
import json
import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType, SimpleNamespace
from uuid import UUID

import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger.context import LLMContext
from frameledger.frames import (
    ContextSnapshot,
    ForkedFrom,
    LLMContextFrame,
    LLMRunFrame,
    LLMTextFrame,
    UnknownFrame,
    encode_frame,
)
from frameledger.ids import ContextId, Version
from frameledger.record import MAX_VALUE_BYTES, decode, outgoing
from frameledger_services import client
from frameledger_services.client import (
    Client,
    ForkRefusedError,
    MisspelledWarning,
    StoredContext,
    SyncClient,
    forking,
    frame_inputs,
    spelling,
    with_defaults,
)
from frameledger_services.client.frame_inputs import FramePreparation, expecting
from frameledger_services.client.publication import Publications
from frameledger_services.client.spelling import is_one_edit, warn_of_misspelled
from frameledger_services.event_log import frame_defaults
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.settings import Settings
from frameledger_services.store.contexts import loads


def test_a_frame_without_id_and_time_gets_both():
    before = datetime.now(UTC)
    frame = with_defaults(LLMTextFrame(text="hello"))
    assert UUID(frame.id).version == 4
    assert abs(datetime.fromisoformat(frame.produced_at) - before).total_seconds() < 5
    assert frame == LLMTextFrame(text="hello", id=frame.id, produced_at=frame.produced_at)


def test_two_frames_never_get_the_same_id():
    assert with_defaults(LLMRunFrame()).id != with_defaults(LLMRunFrame()).id


def test_an_id_and_a_time_that_a_frame_has_stay():
    frame = LLMRunFrame(id="mine", produced_at="long ago")
    assert with_defaults(frame) == frame


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, "\\u00e4", null]}', {"a": [1, -2.5, "\u00e4", None]}),
        ("18446744073709551616", 2**64),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('["\\u0000"]', ["\x00"]),
        ('["\\ud83d"]', ["\ud83d"]),
        ("9223372036854775807", 2**63 - 1),
        ("1e300", 1e300),
        ('"text"', "text"),
    ],
)
def test_json_from_the_database_reads_as_the_standard_library_reads_it(text, value):
    assert loads(text) == value
    assert type(loads(text)) is type(value)


def test_a_name_that_the_client_does_not_have_is_an_attribute_error():
    other = "other"
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        getattr(client, other)


@pytest.mark.regression("trial C10", "journey 1")
def test_a_frame_object_is_completed_once():
    frame = LLMTextFrame(text="hello")
    assert with_defaults(frame) is with_defaults(frame)
    halves = LLMRunFrame(id="mine"), LLMRunFrame(produced_at="2026-01-01T00:00:00Z")
    for half in halves:
        assert with_defaults(half) == with_defaults(half)
    assert with_defaults(with_defaults(frame)) == with_defaults(frame)


@pytest.mark.regression("trial C10", "journey 1")
def test_a_copy_of_a_frame_object_and_an_equal_one_are_other_frames():
    frame = LLMTextFrame(text="hello")
    same = [frame.model_copy(), copy.copy(frame), copy.deepcopy(frame), LLMTextFrame(text="hello")]
    assert [one == frame for one in same] == [True] * 4
    assert len({with_defaults(one).id for one in (frame, *same)}) == 5


@pytest.mark.parametrize("version", [-1, True, 2**63])
def test_what_is_no_version_is_not_expected(version):
    with pytest.raises(ValueError, match="counts the frames of a conversation from 0"):
        expecting(FramePreparation().prepare("c", [LLMRunFrame()]), version)


def test_one_frame_of_the_context_may_expect_a_version():
    preparation = FramePreparation()
    (one,) = expecting(preparation.prepare("c", [LLMRunFrame()]), 7)
    assert (one.complete.expected_version, one.frame.expected_version) == (7, None)
    assert one.complete.id is not None
    (same,) = expecting(preparation.prepare("c", [LLMRunFrame(expected_version=7)]), 7)
    assert same.complete.expected_version == 7
    for given, problem in (
        ([LLMRunFrame(), LLMRunFrame()], "applies to a single frame"),
        ([], "applies to a single frame"),
        ([LLMTextFrame(text="so")], "LLMTextFrame cannot expect a version"),
        ([UnknownFrame(type="LLMRumFrame", v=1)], "LLMRumFrame cannot"),
        ([LLMRunFrame(expected_version=6)], "expected_version 6"),
    ):
        with pytest.raises(ValueError, match=problem):
            expecting(preparation.prepare("c", given), 7)


def test_what_a_frame_object_was_completed_to_is_forgotten_with_the_object():
    gc.collect()
    before = len(frame_defaults._known)
    frames = [LLMTextFrame(text="hello") for _ in range(1_000)]
    ids = {with_defaults(frame).id for frame in frames}
    assert len(frame_defaults._known) == before + 1_000
    del frames
    gc.collect()
    assert len(frame_defaults._known) <= before
    assert ids.isdisjoint({with_defaults(LLMTextFrame(text="hello")).id for _ in range(1_000)})


def test_threads_that_complete_one_object_get_one_frame():
    for _ in range(200):
        frame = LLMTextFrame(text="hello")
        with ThreadPoolExecutor(4) as pool:
            assert len({one.id for one in pool.map(with_defaults, [frame] * 8)}) == 1


RUN = {"type": "LLMRunFrame"}


@pytest.mark.regression("journey 8")
@pytest.mark.parametrize(
    "given", [LLMRunFrame(), RUN, MappingProxyType(RUN), json.dumps(RUN), json.dumps(RUN).encode()]
)
def test_frames_mappings_texts_and_lists_of_them_are_taken(given):
    taken = FramePreparation().prepare("ctx-1", [given, [given, given], (given,)])
    assert [one.frame for one in taken] == [LLMRunFrame()] * 4
    assert {one.complete.type for one in taken} == {"LLMRunFrame"}


def test_a_mapping_may_have_our_values_inside():
    (taken,) = FramePreparation().prepare(
        "ctx-1", [{"type": "LLMContextFrame", "context": LLMContext([{"role": "user"}])}]
    )
    assert taken.frame.context.messages == ({"role": "user"},)


@pytest.mark.regression("journey 8")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "LLMTextFrame"}, r"^LLMTextFrame\.text: Field required"),
        ('{"type": "LLMTextFrame"}', r"^LLMTextFrame\.text: Field required"),
        ({"type": "LLMTextFrame", "text": 5}, r"^LLMTextFrame\.text: Input should be a valid string"),
        ({"no": "type"}, 'the object has no "type"'),
        ("nonsense", r"takes the JSON of a frame, .* \(not_json\)\. .*LLMMessagesAppendFrame"),
        ({"type": "LLMRunFrame", "metadata": {"at": object()}}, "object is not JSON"),
        ({"type": "LLMRunFrame", "metadata": {"at": math.nan}}, "cannot be encoded as JSON"),
    ],
)
def test_what_is_no_frame_by_its_content_is_a_value_error_of_one_line(given, said):
    with pytest.raises(ValueError, match=said) as wrong:
        FramePreparation().prepare("ctx-1", [given])
    assert len(str(wrong.value).splitlines()) == 1
    assert len(str(wrong.value)) < 200


@pytest.mark.regression("journey 8")
@pytest.mark.parametrize("given", [None, 5, object(), LLMRunFrame, {1}, [[RUN]]])
def test_what_is_no_frame_by_its_type_is_a_type_error_of_one_sentence(given):
    with pytest.raises(TypeError, match=r"publish\(\).*\.$"):
        FramePreparation().prepare("ctx-1", [given])


@pytest.mark.regression("journey 8")
@pytest.mark.parametrize("context_id", [None, 5, b"ctx-1", LLMRunFrame()])
def test_a_context_id_that_is_no_text_is_a_type_error(context_id):
    async def published():
        await Client(Settings()).publish(context_id, LLMRunFrame())

    with pytest.raises(TypeError, match="context id is text"):
        asyncio.run(published())


@pytest.mark.parametrize("context_id", ["", "a\x00b", "x" * 256, "é" * 128])
def test_a_text_that_is_no_context_id_is_a_value_error_that_says_what_is(context_id):
    async def published():
        await Client(Settings()).publish(context_id, LLMRunFrame())

    with pytest.raises(ValueError, match=r"^A context id has 1 to 255 bytes and no NUL, but publish\(\) got"):
        asyncio.run(published())


@pytest.mark.regression("journey 1")
@pytest.mark.parametrize("given", [dict(RUN), json.dumps(RUN)])
def test_a_mapping_or_text_is_another_frame_each_time_unless_its_publishing_failed(given):
    preparation = FramePreparation()
    first = preparation.prepare("ctx-1", [given, given])
    preparation.note_published("ctx-1", first)
    second = preparation.prepare("ctx-1", [given, given])
    preparation.note_unconfirmed("ctx-1", second, [1, 1])
    elsewhere = preparation.prepare("ctx-2", [given])
    again = preparation.prepare("ctx-1", [given, given, given])
    assert [one.complete for one in again[:2]] == [one.complete for one in second]
    preparation.note_published("ctx-1", again)
    later = preparation.prepare("ctx-1", [given])
    ids = [one.complete.id for one in (*first, *second, *elsewhere, again[2], *later)]
    assert len(set(ids)) == len(ids)


def test_a_mapping_that_was_changed_since_its_publishing_failed_is_another_frame():
    preparation, given = FramePreparation(), {"type": "LLMTextFrame", "text": "a"}
    before = preparation.prepare("ctx-1", [given])
    preparation.note_unconfirmed("ctx-1", before, [1])
    given["text"] = "b"
    (after,) = preparation.prepare("ctx-1", [given])
    assert after.complete.id != before[0].complete.id
    assert after.complete.text == "b"


@pytest.mark.regression("journey 64")
def test_a_mapping_whose_frame_an_error_had_and_that_was_published_from_there_is_another_frame():
    preparation, given = FramePreparation(), dict(RUN)
    failed = preparation.prepare("ctx-1", [given, given])
    preparation.note_unconfirmed("ctx-1", failed, [1, 1])
    preparation.note_published("ctx-1", preparation.prepare("ctx-1", [failed[0].complete]))
    again = preparation.prepare("ctx-1", [given, given])
    assert again[0].complete == failed[1].complete
    assert again[1].complete.id not in {one.complete.id for one in failed}


@pytest.mark.regression("journey 64")
def test_of_what_may_not_have_been_published_as_much_is_kept_as_fits(monkeypatch):
    monkeypatch.setattr(frame_inputs, "MAX_REMEMBERED_BYTES", 100)
    preparation, given = FramePreparation(), [dict(RUN) for _ in range(4)]
    failed = preparation.prepare("ctx-1", given)
    preparation.note_unconfirmed("ctx-1", failed[:1], [10])
    preparation.note_unconfirmed("ctx-1", failed[:3], [10, 60, 40])
    again = preparation.prepare("ctx-1", given)
    assert [new == old for new, old in zip(again, failed, strict=True)] == [False, True, True, False]
    # What is larger than all that is kept is kept alone.
    preparation.note_unconfirmed("ctx-1", failed[3:], [1_000])
    again = preparation.prepare("ctx-1", given)
    assert [new == old for new, old in zip(again, failed, strict=True)] == [False, False, False, True]


@pytest.mark.regression("journey 6")
@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (UnknownFrame(type="LLMTxtFrame"), "LLMTxtFrame is not a type .* did you mean LLMTextFrame?"),
        (UnknownFrame(type="llmtextframe"), "did you mean LLMTextFrame?"),
        (
            decode(b'{"type":"LLMTextFrame","text":"x","txet":"y"}'),
            "LLMTextFrame has no field 'txet': did you mean 'text'?",
        ),
        (decode(b'{"type":"LLMMessagesAppendFrame","messages":[],"run_lm":true}'), "did you mean 'run_llm'?"),
        (decode(b'{"type":"LLMRunFrame","idd":"1"}'), "did you mean 'id'?"),
    ],
)
def test_what_is_one_letter_from_what_is_known_is_warned_of(frame, said):
    with pytest.warns(MisspelledWarning, match=said):
        warn_of_misspelled([frame])


@pytest.mark.parametrize(
    "frame",
    [
        UnknownFrame(type="OrderPlacedFrame"),
        UnknownFrame(type="LLMTextFrame", v=2),
        decode(b'{"type":"LLMRunFrame","order_id":"18"}'),
        LLMTextFrame(text="x"),
    ],
)
def test_what_is_merely_not_known_is_not_warned_of(frame):
    warn_of_misspelled([frame])


@pytest.mark.regression("gateway 82")
def test_what_is_meant_is_guessed_for_the_first_unknown_names_of_a_publication_only(monkeypatch):
    compared = []

    def is_one_edit_noted(word, other):
        compared.append(word)
        return is_one_edit(word, other)

    monkeypatch.setattr(spelling, "is_one_edit", is_one_edit_noted)
    names = [f"x{number}" for number in range(spelling.MAX_GUESSED - 2)]
    first = LLMRunFrame(**dict.fromkeys(names, 1))
    second = LLMRunFrame(**dict.fromkeys(("idd", "one", "metdata"), 1))
    with pytest.warns(MisspelledWarning) as warned:
        Publications().prepare(
            "c", [first, second, second], source="s", expected_version=None, causation_id=None
        )
    assert [str(one.message) for one in warned] == ["LLMRunFrame has no field 'idd': did you mean 'id'?"]
    assert list(dict.fromkeys(compared)) == [*names, "idd", "one"]


@pytest.mark.regression("gateway 82")
def test_a_client_that_publishes_the_words_of_others_does_not_guess_what_they_mean(monkeypatch):
    monkeypatch.setattr(spelling, "is_one_edit", None)
    frames = [decode(b'{"type":"LLMRunFrame","idd":"1"}'), UnknownFrame(type="LLMTxtFrame")]
    Publications(warns_of_misspelled=False).prepare(
        "c", frames, source="s", expected_version=None, causation_id=None
    )


def test_one_edit_is_a_letter_more_less_other_or_two_that_changed_places():
    letters = "abc"
    words = ["".join(word) for length in range(5) for word in itertools.product(letters, repeat=length)]

    def edits(word):
        for at in range(len(word) + 1):
            yield from (word[:at] + letter + word[at:] for letter in letters)
        for at in range(len(word)):
            yield word[:at] + word[at + 1 :]
            yield from (word[:at] + letter + word[at + 1 :] for letter in letters)
            yield word[:at] + word[at : at + 2][::-1] + word[at + 2 :]

    for word in words:
        near = set(edits(word)) - {word}
        assert {other for other in words if is_one_edit(word, other)} == near & set(words), word


@pytest.mark.regression("journey 4")
def test_whoever_waits_for_a_client_whose_thread_ends_is_told():
    """And so is who comes after that."""
    client = SyncClient(Settings(database_url="postgresql://127.0.0.1:1/nowhere"))
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(client._do, asyncio.Event().wait())
        while not client._waiting:
            pass
        client._loop.call_soon_threadsafe(_exit)
        with pytest.raises(RuntimeError, match=r"thread of this client has ended.*boom"):
            following.result(IN_PROCESS)
    with pytest.raises(RuntimeError, match="boom"):
        client.newest_version("ctx-1")
    client.close()


def _exit():
    raise SystemExit("boom")


@pytest.mark.regression("journey 4")
def test_whoever_waits_for_a_client_that_another_thread_closes_is_told():
    client = SyncClient(Settings())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client._do, asyncio.Event().wait())
        while not client._waiting:
            pass
        client.close()
        with pytest.raises(RuntimeError, match="is closed"):
            waiting.result(IN_PROCESS)


@pytest.mark.regression("journey 4")
def test_whoever_comes_just_before_the_loop_of_a_client_is_closed_is_told(monkeypatch):
    """What it asks for is not begun any more, so nothing cancels it."""
    client = SyncClient(Settings())
    with ThreadPoolExecutor(1) as pool:
        late: list[Future[bool]] = []
        close = client._loop.close

        def asked_before_it_is_closed():
            if not late:
                late.append(pool.submit(client._do, asyncio.Event().wait()))
                while not client._waiting:
                    pass
            close()

        monkeypatch.setattr(client._loop, "close", asked_before_it_is_closed)
        client.close()
        try:
            with pytest.raises(RuntimeError, match="is closed"):
                late[0].result(IN_PROCESS)
        finally:
            # If it was not told, its thread would never end, and so the test.
            for waiting in list(client._waiting):
                waiting.cancel()


@pytest.mark.regression("journey 91")
def test_an_iteration_that_is_collected_in_the_thread_of_the_client_does_not_stop_it():
    """Python ends what was left half way in whichever thread collects garbage."""
    client = SyncClient(Settings())
    ended = threading.Event()

    async def frames():
        try:
            while True:
                yield "a frame"
        finally:
            ended.set()

    iteration = client._iterate(frames())
    next(iteration)
    client._loop.call_soon_threadsafe(iteration.close)
    try:
        assert ended.wait(IN_PROCESS)
    finally:
        # If it waits for itself, it could not be closed either.
        for waiting in list(client._waiting):
            waiting.cancel()
        client.close()


@pytest.mark.regression("journey 91")
def test_an_iteration_that_outlives_its_client_is_ended_without_a_word(recwarn):
    client = SyncClient(Settings())

    async def frames():
        while True:
            yield "a frame"

    iteration = client._iterate(frames())
    next(iteration)
    client.close()
    iteration.close()
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.regression("journey 94")
def test_a_client_of_an_event_loop_that_has_ended_says_so():
    client = Client(
        Settings(kafka_bootstrap_servers="127.0.0.1:1", database_url="postgresql://127.0.0.1:1/no")
    )
    with pytest.raises(BrokerError):
        asyncio.run(client.publish("ctx-1", LLMRunFrame()))
    for asked in (
        client.publish("ctx-1", LLMRunFrame()),
        client.until_stored("ctx-1", ()),
        anext(client.follow("ctx-1")),
    ):

        async def work(asked=asked):
            return await asked

        with pytest.raises(RuntimeError, match="to another event loop"):
            asyncio.run(work())


@pytest.mark.regression("journey 23")
def test_a_client_that_was_never_used_is_closed_twice():
    async def closed():
        client = Client(Settings())
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await anext(client.follow("ctx-1"))

    asyncio.run(closed())


@pytest.mark.regression("fault 321")
def test_a_client_that_is_closed_while_it_reads_a_context_asks_no_model(monkeypatch):
    """Nobody would close the connections to the provider."""

    async def work():
        one = Client(Settings(inference_provider="scripted"))

        async def closed_meanwhile(*_):
            await one.close()
            messages = [{"role": "user", "content": "hi"}]
            return StoredContext(ContextId("ctx"), Version(1), LLMContext(messages))

        monkeypatch.setattr(one._connections, "read", closed_meanwhile)
        with pytest.raises(RuntimeError, match="This client is closed"):
            await one.run_inference("ctx")
        assert one._out_of_band is None

    asyncio.run(work())


@pytest.mark.regression("fault 322")
def test_a_client_whose_closing_is_broken_off_closes_its_connections(monkeypatch):
    """As by a time limit, while a database that does not answer is left."""

    async def work():
        one = Client(Settings())
        closed = []
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def listen():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()

        async def note(name, *_):
            closed.append(name)

        monkeypatch.setattr(one, "_producer", SimpleNamespace(__aexit__=partial(note, "producer")))
        monkeypatch.setattr(one, "_connections", SimpleNamespace(close=partial(note, "connections")))
        monkeypatch.setattr(one, "_out_of_band", SimpleNamespace(close=partial(note, "provider")))
        one._listening = asyncio.create_task(listen())
        await begun.wait()
        closing = asyncio.create_task(one.close())
        await turns()
        closing.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert closed == ["producer", "connections", "provider"]

    asyncio.run(work())


@pytest.mark.regression("fault 233")
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_fork_begins_with_a_frame_that_can_be_published_as_it_is_then(beyond):
    origin = ForkedFrom(context_id="old", version=3, chain="00" * 32)

    def opening(characters):
        messages = ({"role": "user", "content": "x" * characters},)
        snapshot = ContextSnapshot(messages=messages)
        return LLMContextFrame(
            id=str(UUID(int=1)),
            produced_at="2026-05-01T10:00:00.123+00:00",
            context=snapshot,
            forked_from=origin,
        )

    room = MAX_VALUE_BYTES - len(encode_frame(opening(0)))
    # With a time of its own, and with the one that it gets when it is published.
    whole = opening(room + beyond)
    for frame in (whole, whole.model_copy(update={"produced_at": None})):
        with pytest.raises(ForkRefusedError, match="earlier version") if beyond else nullcontext():
            forking.check_size(frame, origin)
        with pytest.raises(ValueError, match="too_large") if beyond else nullcontext():
            outgoing(with_defaults(frame), ContextId("new"), source="s")
