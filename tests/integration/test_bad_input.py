"""Invalid records: each is stored or becomes a dead letter, and no other conversation is delayed."""

import itertools
import json

import psycopg
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import (  # noqa: F401  # a fixture
    PARTITIONS,
    Raw,
    histories,
    own_pipeline,
)
from tests.unit.test_record import FRAMES, REFUSED

from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.frames import UnknownFrame
from frameledger.partition import partition_for

RUN = b'{"type":"LLMRunFrame"}'
HUGE = b"9" * 300
VIEWS = ("conversations", "transcript", "timeline", "turns", "interruptions", "parked", "lag")

# Outcomes of a record; a rejected one has the code of its error instead.
STORED, UNKNOWN, REPEATED, FORWARDED = "stored", "unknown", "repeated", "forwarded"

KEYS = {
    "no key": (None, "bad_key"),
    "an empty key": (b"", "bad_key"),
    "a key of 4 kB": (b"k" * 4096, "bad_key"),
    "a key of 256 bytes": (b"k" * 256, "bad_key"),
    "a key with NUL": (b"ctx\x00", "bad_key"),
    "a key that is not UTF-8": (b"\xff\xfe", "bad_key"),
    "a key of 255 bytes": (b"k" * 255, STORED),
    "a key beyond ASCII": ("Gespräch \N{SPEECH BALLOON}".encode(), STORED),
    "a key with quotes and lines": (b"'; DROP TABLE frames; --\r\n\t\"", STORED),
}

HEADERS = {
    "strange headers": ((("", b""), ("\x00", None), ("a" * 300, b"\xff"), ("ce_id", b"\x00")), STORED),
    "a huge header": ((("h", b"x" * 200_000),), STORED),
    "a thousand headers": (tuple((f"h{number}", b"x") for number in range(1000)), STORED),
    "a source that is no text": ((("ce_source", b"a\x00\xff"),), STORED),
    "a trace that is none": ((("traceparent", b"00-junk"),), STORED),
    "a forged place": ((("fl_forwarded_from", b"somewhere:1:2:3"),), STORED),
    "a place that is none": ((("fl_forwarded_from", b"\x00" * 50),), STORED),
    "an encrypted value": ((("enc", b"1"),), "encrypted"),
}

VALUES = {
    "a tombstone": (None, "empty"),
    "8 MiB": (
        b'{"type":"TranscriptionFrame","user_id":"u","timestamp":"","text":"%s"}'
        % (b"x" * (MAX_VALUE_BYTES - 80)),
        STORED,
    ),
    "NUL in every text of a message": (
        b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"us\\u0000er","content":"a\\u0000","name":"\\u0000"},'
        b'{"llm":"x\\u0000","message":{"text":"\\u0000"}},'
        b'{"tool_calls":[5,{"function":5},{"function":{"name":"\\u0000","arguments":{"a":"\\u0000"}}}]}]}',
        STORED,
    ),
    "messages of any shape": (
        b'{"type":"LLMMessagesAppendFrame","messages":[{},{"role":5,"content":{"a":[%s]}},{"llm":5,"message":7},'
        b'{"content":[{"text":5},5,null]}]}' % HUGE,
        STORED,
    ),
    "half a character in a message": (
        b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"a\\ud83d"}]}',
        STORED,
    ),
    "half a character in text that streams": (
        b'{"type":"TranscriptionFrame","user_id":"u","timestamp":"","text":"a\\ud83d"}',
        STORED,
    ),
    "half a character in a type": (b'{"type":"Wi\\ud800nk"}', UNKNOWN),
    "NUL in a type": (b'{"type":"Wi\\u0000nk"}', "invalid_field"),
    "a type of 100 kB": (b'{"type":"%s"}' % (b"W" * 100_000), "invalid_field"),
    "a run id that is a number": (b'{"type":"Wink","run_id":5}', UNKNOWN),
    "a run id that is a list": (b'{"type":"Wink","run_id":[1]}', UNKNOWN),
    "a run id with NUL of an unknown type": (b'{"type":"Wink","run_id":"a\\u0000"}', UNKNOWN),
    "a run id of 100 kB of an unknown type": (b'{"type":"Wink","run_id":"%s"}' % (b"r" * 100_000), UNKNOWN),
    "a run id of 255 bytes of an unknown type": (b'{"type":"Wink","run_id":"%s"}' % (b"r" * 255), UNKNOWN),
    "a run id of 255 bytes with NUL": (
        b'{"type":"LLMTextFrame","text":"","run_id":"%s\\u0000"}' % (b"r" * 254),
        "bad_id",
    ),
    "a run id where none belongs": (b'{"type":"StartFrame","run_id":{"a":1}}', STORED),
    "a call id where none belongs": (b'{"type":"LLMRunFrame","tool_call_id":"\\u0000"}', STORED),
    "a function whose name has NUL": (
        b'{"type":"FunctionCallInProgressFrame","function_name":"f\\u0000","tool_call_id":"t",'
        b'"arguments":{"a\\u0000":"\\u0000","n":%s}}' % HUGE,
        STORED,
    ),
    "arguments that are text and no JSON": (
        b'{"type":"FunctionCallInProgressFrame","function_name":"f","tool_call_id":"t","arguments":"\\u0000{"}',
        STORED,
    ),
    "announced calls with NUL": (
        b'{"type":"FunctionCallsStartedFrame","function_calls":[{"function_name":"\\u0000","tool_call_id":"q",'
        b'"arguments":{"n":%s}}]}' % HUGE,
        STORED,
    ),
    "tools of any shape": (
        b'{"type":"LLMSetToolsFrame","tools":[{"name":"\\u0000","n":%s},{}]}' % HUGE,
        STORED,
    ),
    "settings with NUL": (b'{"type":"LLMUpdateSettingsFrame","settings":{"a\\u0000":"\\u0000"}}', STORED),
    "an error with NUL": (b'{"type":"ErrorFrame","error":"\\u0000","code":"\\u0000","fatal":true}', STORED),
    "a start with NUL": (
        b'{"type":"LLMFullResponseStartFrame","provider":"\\u0000","model":"\\u0000","request_sha256":"\\u0000"}',
        STORED,
    ),
    "as many tokens as there can be": (
        b'{"type":"LLMFullResponseEndFrame","usage":{"input_tokens":9223372036854775807,"output_tokens":0}}',
        STORED,
    ),
    "more tokens than there can be": (
        b'{"type":"LLMFullResponseEndFrame","usage":{"input_tokens":9223372036854775808,"output_tokens":0}}',
        "invalid_field",
    ),
    "a reason that is none of ours": (
        b'{"type":"LLMFullResponseEndFrame","finish_reason":"\\u0000"}',
        "invalid_field",
    ),
    "made before all time": (b'{"type":"LLMRunFrame","produced_at":"0001-01-01T00:00:00+14:00"}', STORED),
    "made after all time": (b'{"type":"LLMRunFrame","produced_at":"9999-12-31T23:59:59-14:00"}', STORED),
    "made at no time": (b'{"type":"LLMRunFrame","produced_at":"\\u0000"}', STORED),
}

UNIT = {
    name: (value, UNKNOWN if isinstance(frame, UnknownFrame) else STORED)
    for name, (value, frame) in FRAMES.items()
} | REFUSED


def cases():
    """Yields cases: their records, of which the last is tested, and its outcome. Each case has a context of its own."""
    for name, (key, ending) in KEYS.items():
        yield name, [Raw(key, RUN)], ending
    numbers = itertools.count(1)
    for name, (headers, ending) in HEADERS.items():
        yield name, [Raw(b"headers-%d" % next(numbers), RUN, headers)], ending
    for name, (value, ending) in {**UNIT, **VALUES}.items():
        yield name, [Raw(b"value-%d" % next(numbers), value)], ending
    named = b'{"type":"LLMRunFrame","id":"a","pts":%d}'
    yield "a repetition", [Raw(b"again", named % 1)] * 2, REPEATED
    yield "an id that is used twice", [Raw(b"twice", named % 1), Raw(b"twice", named % 2)], "id_reused"
    foreign = (partition_for(b"foreign", PARTITIONS) + 1) % PARTITIONS
    yield "a foreign partition", [Raw(b"foreign", named % 1, partition=foreign)], FORWARDED
    yield "no frame in a foreign partition", [Raw(b"foreign", b"no frame", partition=foreign)], "not_json"


def test_every_record_ends_where_it_should_and_no_conversation_waits_for_it(pipeline):
    good = iter(histories("good"))
    records: list[Raw] = []
    meant: dict[int, tuple[str, str]] = {}
    for name, some, ending in cases():
        records += itertools.islice(good, 5)
        records += some
        meant[len(records) - 1] = name, ending
    records += good
    with projector(pipeline.settings) as running:
        places = pipeline.publish(records)
        pipeline.until_idle(running)
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        stored = {
            (partition, offset): outcome
            for partition, offset, outcome in connection.execute(
                'SELECT partition, "offset", outcome FROM frames'
            )
        }
        rejected = {
            (partition, offset): code
            for partition, offset, code in connection.execute(
                'SELECT partition, "offset", code FROM rejected_frames'
            )
        }
        for view in VIEWS:
            connection.execute(f"SELECT * FROM {view}").fetchall()
        repeated = value_of(connection, "SELECT sum(duplicate_count)::int FROM contexts")

    def ended(place):
        if place in rejected:
            return rejected[place]
        outcome = stored.get(place)
        return STORED if outcome in ("applied", "ignored") else outcome

    ends = {name: ended(places[number]) for number, (name, _) in meant.items()}
    elsewhere = {REPEATED: None, FORWARDED: None}
    assert ends == {name: elsewhere.get(ending, ending) for name, ending in meant.values()}
    assert len(meant) > 100
    # No record is lost: of the forwarded one the copy is stored.
    assert len(stored) + len(rejected) + repeated == len(records)
    pipeline.check(every=50)


def test_a_frame_that_the_database_refuses_parks_its_conversation_and_no_other(pipeline):
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute("ALTER TABLE messages ADD CONSTRAINT refused CHECK (text <> 'refused') NOT VALID")
        records: list[Raw] = []
        for number, good in enumerate(histories("good", ["barge-in", "parallel-tools"])):
            records.append(good)
            text = "refused" if number == 10 else "taken"
            value = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": text}]}
            records.append(Raw(b"bad", json.dumps(value).encode()))
        with projector(pipeline.settings) as running:
            pipeline.publish(records)
            pipeline.until_idle(running)
            assert running.stop() == 0
        outcomes = connection.execute(
            "SELECT context_id = 'bad', outcome = 'parked', count(*)::int FROM frames GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
        many = len(records) // 2
        assert outcomes == [(False, False, many), (True, False, 10), (True, True, many - 10)]
        assert value_of(connection, "SELECT since FROM parked") == 11
        assert len(value_of(connection, "SELECT context_at('bad')")["messages"]) == 10
