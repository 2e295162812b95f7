"""Decoding records: a frame of a context, or one error that says what is wrong."""

import json
import pickle
from uuid import UUID

import pytest

from frameledger.decode_error import REASONS, DecodeError
from frameledger.frames import (
    FunctionCallInProgressFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
    TranscriptionFrame,
    UnknownFrame,
    encode_frame,
)
from frameledger.headers import headers_for, originally_logged_ms
from frameledger.record import (
    MAX_VALUE_BYTES,
    LogPosition,
    Record,
    decode,
    derived_id,
    forward,
    outgoing,
    read,
)

RUN = b'{"type":"LLMRunFrame"}'
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01".encode()


def run(**fields):
    return json.dumps({"type": "LLMRunFrame", **fields}).encode()


def metadata(text):
    return b'{"type":"LLMRunFrame","metadata":{"a":' + text + b"}}"


def nested(levels):
    """A frame with arrays in it. The frame and its metadata are the first two levels."""
    return metadata(b"[" * (levels - 2) + b"]" * (levels - 2))


def record(value=RUN, key=b"c-1", headers=(), offset=7):
    return Record("llm.frames", 3, offset, key, value, tuple(headers), 1_700_000_000_000)


FRAMES = {
    "the least there is": (RUN, LLMRunFrame()),
    "spaces around": (b' {"type" : "LLMRunFrame"}\r\n', LLMRunFrame()),
    "keys in any order, escaped": (b'{"text":"a","ty\\u0070e":"LLMTextFrame"}', LLMTextFrame(text="a")),
    "a type that is repeated": (b'{"type":"StartFrame","type":"LLMRunFrame"}', LLMRunFrame()),
    "a field that is repeated": (b'{"type":"LLMTextFrame","text":5,"text":"b"}', LLMTextFrame(text="b")),
    "version 1": (run(v=1), LLMRunFrame()),
    "an unknown field": (run(mood="good"), LLMRunFrame.model_validate({"mood": "good"})),
    "an unknown field that is the name of a method": (
        run(model_copy=1),
        LLMRunFrame.model_validate({"model_copy": 1}),
    ),
    "NUL in text": (b'{"type":"LLMTextFrame","text":"a\\u0000"}', LLMTextFrame(text="a\x00")),
    "an id of 255 bytes": (run(id="i" * 255), LLMRunFrame(id="i" * 255)),
    "an id of 255 bytes beyond ASCII": (run(id="€" * 85), LLMRunFrame(id="€" * 85)),
    "an id that is an integer": (run(id=5), LLMRunFrame()),
    "an id that is a float": (run(id=5.5), LLMRunFrame()),
    "a null id": (run(id=None), LLMRunFrame()),
    "100 levels": (nested(100), LLMRunFrame(metadata=json.loads(nested(100))["metadata"])),
    "text that looks like numbers": (
        metadata(b'",NaN, 1e400,"'),
        LLMRunFrame(metadata={"a": ",NaN, 1e400,"}),
    ),
    "text of many brackets": (metadata(b'"%s"' % (b"[{" * 99)), LLMRunFrame(metadata={"a": "[{" * 99})),
    "text of many digits": (metadata(b'"%s"' % (b"1" * 5000)), LLMRunFrame(metadata={"a": "1" * 5000})),
    "exponents": (metadata(b"[1e-7,2E5]"), LLMRunFrame(metadata={"a": [1e-07, 200000.0]})),
    "an integer that a double holds": (metadata(b"9" * 308), LLMRunFrame(metadata={"a": int("9" * 308)})),
    "a whole pair of surrogates": (
        b'{"type":"LLMTextFrame","text":"\\ud83d\\ude00"}',
        LLMTextFrame(text="\U0001f600"),
    ),
    "a duration without a point": (
        b'{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"t","arguments":{},'
        b'"timeout_secs":5}',
        FunctionCallInProgressFrame(function_name="f", tool_call_id="t", arguments={}, timeout_secs=5.0),
    ),
    "an unknown type": (
        b'{"type":"Wink","eye":"left"}',
        UnknownFrame.model_validate({"type": "Wink", "eye": "left"}),
    ),
    "an unknown type of any shape": (
        b'{"type":"Wink","pts":"x","v":9}',
        UnknownFrame(type="Wink", pts="x", v=9),
    ),
    "a newer version": (run(v=2, metadata=[1]), UnknownFrame(type="LLMRunFrame", v=2, metadata=[1])),
    "an old name": (
        b'{"type":"LLMMessagesFrame","messages":[]}',
        decode(b'{"type":"LLMMessagesUpdateFrame","messages":[],"run_llm":true}'),
    ),
    "an old shape": (
        b'{"type":"FunctionCallResultFrame","function_name":"f","call_id":"t","error":"no"}',
        decode(
            b'{"type":"FunctionCallResultFrame","function_name":"f","tool_call_id":"t","result":{"error":"no"}}'
        ),
    ),
    "an old shape of today's fields": (
        b'{"type":"FunctionCallResultFrame","function_name":"f","tool_call_id":"t","result":null,"error":"no"}',
        decode(
            b'{"type":"FunctionCallResultFrame","function_name":"f","tool_call_id":"t","result":{"error":"no"}}'
        ),
    ),
}

REFUSED = {
    "no bytes": (b"", "empty"),
    "more than the limit": (b" " * (MAX_VALUE_BYTES + 1), "too_large"),
    "a byte order mark": (b"\xef\xbb\xbf" + RUN, "byte_order_mark"),
    "UTF-16": (RUN.decode().encode("utf-16"), "not_utf8"),
    "UTF-16 without a mark": (RUN.decode().encode("utf-16-be"), "not_json"),
    "Latin-1": (b'{"type":"LLMTextFrame","text":"\xe9"}', "not_utf8"),
    "a surrogate in UTF-8": (b'{"type":"LLMTextFrame","text":"\xed\xa0\xbd"}', "not_utf8"),
    "not JSON": (b"hello", "not_json"),
    "half a frame": (RUN[:-1], "not_json"),
    "two frames": (RUN + RUN, "not_json"),
    "a control character in text": (b'{"type":"LLMTextFrame","text":"a\x01"}', "not_json"),
    "a pickle": (pickle.dumps({"type": "LLMRunFrame"}), "not_utf8"),
    "NaN": (metadata(b"NaN"), "not_a_number"),
    "minus Infinity": (metadata(b"[-Infinity]"), "not_a_number"),
    "NaN in an unknown field": (b'{"type":"LLMRunFrame","x":NaN}', "not_a_number"),
    "NaN in an unknown type": (b'{"type":"Wink","x":NaN}', "not_a_number"),
    "NaN under a key that is repeated": (
        b'{"type":"LLMRunFrame","metadata":NaN,"metadata":{}}',
        "not_a_number",
    ),
    "NaN under a key that is repeated, with a space behind it": (
        b'{"type":"LLMRunFrame","pts" :NaN,"pts":1}',
        "not_a_number",
    ),
    "1e400": (metadata(b"1e400"), "number_out_of_range"),
    "an integer beyond a double": (metadata(b"9" * 400), "number_out_of_range"),
    "an integer beyond a double in a field": (
        b'{"type":"LLMRunFrame","pts":%s}' % (b"9" * 400),
        "number_out_of_range",
    ),
    "an integer of 5,000 digits": (metadata(b"9" * 5000), "number_out_of_range"),
    "101 levels": (nested(101), "too_deep"),
    "10,000 levels": (nested(10_000), "too_deep"),
    "null": (b"null", "not_an_object"),
    "an array": (b"[" + RUN + b"]", "not_an_object"),
    "a string": (b'"LLMRunFrame"', "not_an_object"),
    "a number": (b"12", "not_an_object"),
    "true": (b"true", "not_an_object"),
    "no type": (b"{}", "no_type"),
    "a type that is a number": (b'{"type":1}', "no_type"),
    "a null type": (b'{"type":null}', "no_type"),
    "an empty type": (b'{"type":""}', "invalid_field"),
    "version true": (run(v=True), "bad_version"),
    "version 1.0": (run(v=1.0), "bad_version"),
    "version 0": (run(v=0), "bad_version"),
    "a null version": (run(v=None), "bad_version"),
    "a version of an unknown type that is text": (b'{"type":"Wink","v":"1"}', "bad_version"),
    "an empty id": (run(id=""), "bad_id"),
    "an id with NUL": (run(id="a\x00b"), "bad_id"),
    "an id of 4 kB": (run(id="x" * 4096), "bad_id"),
    "an id of 256 bytes": (run(id="x" * 256), "bad_id"),
    "an id of 258 bytes in 86 characters": (
        b'{"type":"LLMRunFrame","id":"%s"}' % ("€" * 86).encode(),
        "bad_id",
    ),
    "such an id in escapes": (run(id="€" * 86), "bad_id"),
    "such an id of an unknown type": (b'{"type":"Wink","id":"%s"}' % ("€" * 86).encode(), "bad_id"),
    "an id that is a boolean": (run(id=True), "bad_id"),
    "an id that is an object": (run(id={}), "bad_id"),
    "a run id of 4 kB": (b'{"type":"LLMTextFrame","text":"","run_id":"%s"}' % (b"x" * 4096), "bad_id"),
    "an id that is too long in an announcement": (
        b'{"type":"FunctionCallsStartedFrame","function_calls":'
        b'[{"function_name":"f","tool_call_id":"%s","arguments":{}}]}' % ("€" * 86).encode(),
        "bad_id",
    ),
    "a field that is missing": (b'{"type":"LLMTextFrame"}', "invalid_field"),
    "a call id that is missing": (
        b'{"type":"FunctionCallCancelFrame","function_name":"f"}',
        "invalid_field",
    ),
    "the text true for a boolean": (
        b'{"type":"LLMTextFrame","text":"a","append_to_context":"true"}',
        "invalid_field",
    ),
    "1.0 for an integer": (b'{"type":"LLMTextFrame","text":"a","attempt":1.0}', "invalid_field"),
    "true for an integer": (b'{"type":"LLMTextFrame","text":"a","attempt":true}', "invalid_field"),
    "a number for text": (b'{"type":"LLMTextFrame","text":5}', "invalid_field"),
    "a message that is text": (b'{"type":"LLMMessagesAppendFrame","messages":["hi"]}', "invalid_field"),
    "an old name with a wrong shape": (b'{"type":"LLMMessagesFrame","messages":{}}', "invalid_field"),
}


@pytest.mark.regression("fault 135")
@pytest.mark.parametrize(("value", "frame"), FRAMES.values(), ids=FRAMES)
def test_bytes_that_are_a_frame_are_read(value, frame):
    assert decode(value) == frame
    assert type(decode(value)) is type(frame)


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_bytes_that_are_no_frame_are_refused_with_their_reason(value, reason):
    with pytest.raises(DecodeError) as refused:
        decode(value)
    assert refused.value.reason == reason


@pytest.mark.parametrize("value", [value for value, _ in REFUSED.values()], ids=REFUSED)
def test_an_error_is_one_short_readable_line_that_holds_nothing_else(value):
    with pytest.raises(DecodeError) as refused:
        decode(value)
    error = refused.value
    assert error.reason in REASONS
    assert str(error) == f"{error.reason}: {error.detail}"
    assert str(error).isprintable()
    assert 10 < len(error.detail) <= 300
    # The errors underneath hold the whole value, and some print it.
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"type":"LLMTextFrame","text":5}', "LLMTextFrame.text: Input should be a valid string"),
        (b'{"type":"LLMMessagesAppendFrame","messages":[{},5]}', "LLMMessagesAppendFrame.messages.1: "),
        (b'{"type":"LLMRunFrame","id":""}', "LLMRunFrame.id: an id is text of 1 to 255 bytes without NUL"),
        (RUN.decode().encode("utf-16"), "it looks like UTF-16"),
        (metadata(b"1e400"), "the number '1e400' is beyond what a double can hold"),
        (RUN[:-1], "at byte 21"),
        (b'{"type":"Wink","id":""}', "a frame of an unknown type.id: an id is text"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(value, told):
    with pytest.raises(DecodeError) as refused:
        decode(value)
    assert told in str(refused.value)


def test_a_long_payload_is_quoted_briefly():
    with pytest.raises(DecodeError) as refused:
        decode(b'{"type":"' + b"secret\\n" * 500 + b'"}')
    assert str(refused.value).count("secret") < 10


def test_an_error_survives_pickling():
    error = DecodeError("not_json", "broken")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.reason, copy.detail, str(copy)) == (error.reason, error.detail, str(error))


MAX = MAX_VALUE_BYTES - 100


@pytest.mark.parametrize(
    ("value", "reason"),
    {
        "brackets": (b"[" * MAX_VALUE_BYTES, "too_deep"),
        "digits": (metadata(b"9" * MAX), "number_out_of_range"),
        "a string without end": (b'{"type":"' + b"\\" * MAX, "not_json"),
        "messages of a wrong shape": (
            b'{"type":"LLMMessagesAppendFrame","messages":[%s1]}' % (b"1," * (MAX // 2)),
            "invalid_field",
        ),
    }.values(),
    ids=["brackets", "digits", "a string without end", "messages of a wrong shape"],
)
def test_eight_megabytes_that_are_no_frame_are_refused(value, reason):
    with pytest.raises(DecodeError) as refused:
        decode(value)
    assert refused.value.reason == reason


def test_eight_megabytes_that_are_a_frame_are_read():
    text = "x" * MAX
    assert decode(b'{"type":"LLMTextFrame","text":"%s"}' % text.encode()) == LLMTextFrame(text=text)
    assert decode(b'{"type":"LLMTextFrame","text":"\\ud83d%s"}' % text.encode()).text == HALF + text
    assert decode(metadata(b'"%s"' % (b"\\" * MAX))) == LLMRunFrame(metadata={"a": "\\" * (MAX // 2)})
    assert (
        len(decode(b'{"type":"LLMMessagesAppendFrame","messages":[%s{}]}' % (b"{}," * 300_000)).messages)
        == 300_001
    )


HALF = "\ud83d"
WRITTEN_OUT = "\\ud83d"


def test_half_a_character_stays_in_text_that_streams():
    for frame_type in (
        "TextFrame",
        "LLMTextFrame",
        "VisionTextFrame",
        "LLMThoughtTextFrame",
        "TranscriptionFrame",
    ):
        frame = decode(f'{{"type":"{frame_type}","text":"a\\uD83D"}}'.encode())
        assert frame.text == "a" + HALF
        assert decode(encode_frame(frame)) == frame


def test_half_a_character_is_written_out_everywhere_else():
    value = {
        "type": "LLMTextFrame",
        "id": HALF,
        "text": HALF,
        "metadata": {HALF: [HALF + "x" + HALF]},
        "extra" + HALF: HALF,
    }
    assert decode(json.dumps(value).encode()) == LLMTextFrame(
        id=WRITTEN_OUT,
        text=HALF,
        metadata={WRITTEN_OUT: [WRITTEN_OUT + "x" + WRITTEN_OUT]},
        **{"extra" + WRITTEN_OUT: WRITTEN_OUT},
    )


@pytest.mark.parametrize(
    ("content", "read_as"),
    [
        (r"\ud83d", r"\ud83d"),
        (r"\uDE00", r"\ude00"),
        (r"\ud83d\ud83d\ude00", "\\ud83d\U0001f600"),
        (r"\ude00\ud83d", r"\ude00\ud83d"),
        (r"\ud83d \ude00", r"\ud83d \ude00"),
        (r"\\ud83d\ud83d", r"\ud83d\ud83d"),
        (r"\\\ud83d", r"\\ud83d"),
        (r"\n\ud83d\u00e9", "\n\\ud83dé"),
    ],
)
def test_halves_in_a_message_are_joined_or_written_out(content, read_as):
    value = '{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"' + content + '"}]}'
    assert decode(value.encode()) == LLMMessagesAppendFrame(messages=[{"role": "user", "content": read_as}])


def test_an_id_may_grow_too_long_by_its_halves():
    with pytest.raises(DecodeError) as refused:
        decode(run(id=HALF * 43))
    assert refused.value.reason == "bad_id"


def test_half_a_character_is_text_of_an_unknown_type_too():
    assert decode(b'{"type":"Wink","text":"\\ud83d"}') == UnknownFrame.model_validate(
        {"type": "Wink", "text": WRITTEN_OUT}
    )


def test_a_record_is_read_with_what_its_headers_say():
    value = run(id="f-1")
    logged = read(record(value, headers=[("ce_source", b"//demo"), ("traceparent", TRACEPARENT)]))
    assert logged.context_id == "c-1"
    assert (logged.frame_id, logged.has_own_id) == ("f-1", True)
    assert logged.frame == LLMRunFrame(id="f-1")
    assert (logged.source, logged.trace_id) == ("//demo", TRACE)
    assert logged.place == LogPosition("llm.frames", 3, 7)
    assert logged.record.value is value


def test_an_id_that_is_missing_follows_from_the_place():
    first, again, next_one = read(record()), read(record()), read(record(offset=8))
    assert first.frame_id == again.frame_id != next_one.frame_id
    assert not first.has_own_id
    assert first.frame.id is None


def test_derived_ids_never_change():
    assert derived_id(LogPosition("llm.frames", 3, 7)) == "de345e27-071e-56ab-887f-44165c02c054"
    assert UUID(derived_id(LogPosition("llm.frames", 3, 7))).version == 5


def test_a_number_is_no_id_and_stays_in_the_payload():
    logged = read(record(run(id=17)))
    assert not logged.has_own_id
    assert logged.frame_id == read(record()).frame_id
    assert b"17" in logged.record.value


@pytest.mark.parametrize(
    ("key", "context_id"),
    [(b"c", "c"), (b"k" * 255, "k" * 255), ("é☂".encode(), "é☂"), (b" ", " ")],
)
def test_the_key_is_the_context_id(key, context_id):
    assert read(record(key=key)).context_id == context_id


@pytest.mark.parametrize("key", [None, b"", b"k" * 256, b"a\x00", b"\xff", b"\xed\xa0\xbd"])
def test_a_key_that_is_no_context_id_is_refused(key):
    with pytest.raises(DecodeError) as refused:
        read(record(key=key))
    assert refused.value.reason == "bad_key"


def test_a_tombstone_is_refused():
    with pytest.raises(DecodeError) as refused:
        read(record(value=None))
    assert refused.value.reason == "empty"


def test_an_encrypted_record_is_refused_as_such_whatever_else_is_wrong():
    with pytest.raises(DecodeError) as refused:
        read(record(value=b"\x00\xff", key=None, headers=[("enc", None)]))
    assert refused.value.reason == "encrypted"


@pytest.mark.parametrize(
    ("source", "read_as"),
    [(b"", ""), (b"a\xffb", "a\ufffdb"), (b"a\x00b", "a\ufffdb"), (None, None), ("é".encode(), "é")],
)
def test_a_source_is_always_text(source, read_as):
    assert read(record(headers=[("ce_source", source)])).source == read_as


def test_of_headers_with_one_name_the_last_counts():
    assert read(record(headers=[("ce_source", b"a"), ("ce_source", b"b"), ("x", b"c")])).source == "b"


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        b"",
        b"\xff\x00",
        TRACEPARENT.upper(),
        TRACEPARENT + b"-more",
        b" " + TRACEPARENT,
        TRACEPARENT + b"\n",
        b"ff" + TRACEPARENT[2:],
        TRACEPARENT.replace(TRACE.encode(), b"0" * 32),
        TRACEPARENT.replace(b"00f067aa0ba902b7", b"0" * 16),
    ],
)
def test_a_trace_context_that_is_not_valid_is_none(traceparent):
    assert read(record(headers=[("traceparent", traceparent)])).trace_id is None


def test_a_trace_context_of_a_later_version_may_say_more():
    logged = read(record(headers=[("traceparent", b"01" + TRACEPARENT[2:] + b"-more")]))
    assert (logged.trace_id, logged.traceparent) == (TRACE, TRACEPARENT.decode())


@pytest.mark.parametrize("cause", ["f-1", "é" * 127, "5f0d6c1e-7a34-5f0b-9d37-3c1f6a7e2b94"])
def test_a_cause_is_the_id_of_any_frame(cause):
    assert read(record(headers=[("fl_causation_id", cause.encode())])).causation_id == cause


@pytest.mark.parametrize("header", [None, b"", b"a\x00b", b"\xff", b"x" * 256])
def test_a_cause_that_is_no_id_counts_as_absent(header):
    assert (
        read(record(headers=[("fl_causation_id", b"f-1"), ("fl_causation_id", header)])).causation_id is None
    )


@pytest.mark.parametrize("cause", ["", "a\x00b", "x" * 256])
def test_nothing_is_published_with_a_cause_that_is_no_id(cause):
    with pytest.raises(ValueError, match="causation_id"):
        outgoing(LLMRunFrame(id="f-2"), "c-1", source="//demo", causation_id=cause)


def test_a_forwarded_record_keeps_its_cause():
    sent = outgoing(LLMRunFrame(id="f-2"), "c-1", source="//demo", causation_id=UUID(int=7))
    assert sent.headers[-1] == ("fl_causation_id", b"00000000-0000-0000-0000-000000000007")
    copy = forward(Record("llm.frames", 5, 99, sent.key, sent.value, sent.headers))
    again = forward(Record("llm.frames", 4, 9, copy.key, copy.value, copy.headers))
    assert read(Record("llm.frames", 4, 9, again.key, again.value, again.headers)).causation_id == str(
        UUID(int=7)
    )


def test_a_forwarded_record_has_the_bytes_and_the_id_of_its_original():
    original = record(headers=[("ce_source", b"kcat"), ("mine", None)])
    sent = forward(original)
    copy = Record("llm.frames", 5, 99, sent.key, sent.value, sent.headers)
    assert (sent.key, sent.value) == (original.key, original.value)
    assert sent.headers == (
        *original.headers,
        ("fl_forwarded_from", b"llm.frames:1:3:7"),
        ("fl_originally_logged_ms", str(original.timestamp_ms).encode()),
    )
    assert read(copy).frame_id == read(original).frame_id
    assert read(copy).place == LogPosition("llm.frames", 3, 7)


def test_a_copy_of_a_copy_names_the_original_and_its_time():
    sent = forward(record())
    again = forward(Record("llm.frames", 5, 99, sent.key, sent.value, sent.headers, timestamp_ms=1))
    assert again == sent
    assert originally_logged_ms(dict(again.headers)) == record().timestamp_ms


@pytest.mark.parametrize("header", [b"", b"-1", b"1e3", b"1" * 16, "١".encode(), None])
def test_a_time_of_an_original_that_cannot_be_read_counts_as_absent(header):
    assert originally_logged_ms({"fl_originally_logged_ms": header}) is None


@pytest.mark.parametrize(
    "header",
    [b"", b"llm.frames:3:7", b"llm.frames:1:3:-7", b"llm.frames:1:3:7:8", b"a b:1:3:7", b"\xff", None],
)
def test_a_forward_header_that_cannot_be_read_counts_as_absent(header):
    logged = read(record(headers=[("fl_forwarded_from", header)]))
    assert logged.place == LogPosition("llm.frames", 3, 7)


def test_a_record_without_key_or_value_is_not_forwarded():
    for nowhere in (record(key=None), record(value=None)):
        with pytest.raises(ValueError, match="key and value"):
            forward(nowhere)


def test_what_is_published_is_read_back():
    frame = TranscriptionFrame(id="f-1", text="Grüß Gott", produced_at="2026-01-31T10:00:00.5+01:00")
    sent = outgoing(frame, "c-é", source="//demo/client", traceparent=TRACEPARENT.decode())
    assert sent.headers == (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"f-1"),
        ("ce_type", b"TranscriptionFrame"),
        ("ce_source", b"//demo/client"),
        ("ce_subject", "c-é".encode()),
        ("ce_time", b"2026-01-31T10:00:00.5+01:00"),
        ("traceparent", TRACEPARENT),
    )
    logged = read(Record("llm.frames", 0, 0, sent.key, sent.value, sent.headers))
    assert (logged.frame, logged.context_id, logged.source) == (frame, "c-é", "//demo/client")
    assert logged.trace_id == TRACE


def test_headers_leave_out_what_the_frame_does_not_say():
    names = [name for name, _ in headers_for(LLMRunFrame(produced_at="yesterday"), "c-1", source="//demo")]
    assert names == ["ce_specversion", "ce_type", "ce_source", "ce_subject"]


@pytest.mark.regression("fault 33")
def test_a_frame_of_an_unknown_type_is_published_whatever_its_time_is():
    frame = decode(b'{"type":"NewFrame","produced_at":1770000000}')
    assert "ce_time" not in dict(outgoing(frame, "c-1", source="//demo").headers)


@pytest.mark.parametrize("context_id", ["", "é" * 128, "a\x00", HALF])
def test_nothing_is_published_to_what_is_no_context_id(context_id):
    with pytest.raises(ValueError, match="context_id"):
        outgoing(LLMRunFrame(), context_id, source="//demo")


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (LLMTextFrame(text="x" * MAX_VALUE_BYTES), "too_large"),
        (LLMUpdateSettingsFrame(settings={"a": 10**400}), "number_out_of_range"),
        (LLMUpdateSettingsFrame(settings={"a": float("nan")}), "LLMUpdateSettingsFrame"),
        (LLMRunFrame(id="€" * 86), "bad_id"),
        (LLMRunFrame(metadata=json.loads(b'{"a":' * 100 + b"1" + b"}" * 100)), "too_deep"),
    ],
    ids=["too large", "a number beyond a double", "NaN", "an id that is too long", "too deep"],
)
def test_nothing_is_published_that_nobody_could_read(frame, told):
    with pytest.raises(ValueError, match=told):
        outgoing(frame, "c-1", source="//demo")
