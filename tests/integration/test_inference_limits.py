"""Limits that are checked before a model is called: what they count, their messages, and that counting reads few
rows."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest
from psycopg import AsyncConnection

from frameledger.context import LLMContext
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference import limits
from frameledger_services.inference.limits import RunLimits
from frameledger_services.providers.request import Request
from frameledger_services.settings import Settings
from frameledger_services.store import spending
from frameledger_services.store.contexts import StoredContext

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OFF = {name: 0 for name in Settings.model_fields if name.startswith("limit_")}

MAX = 2**63 - 1
"""The largest number of tokens, and the largest limit, that a frame can name."""


def run(context_id, version, at, trigger="LLMRunFrame", tokens=(None, None), status="ended", model="m"):
    """Returns a row of `runs`: a run that was requested at this version and time."""
    return (context_id, f"run-{version}", version, at, trigger, *tokens, status, model, "maker")


def stored(database, *rows):
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO runs (context_id, run_id, requested_version, requested_at, started_at, trigger, input_tokens,
                output_tokens, status, model, provider)
            VALUES (%s, %s, %s, %s, NULL, %s, %s, %s, %s, %s, %s)
            """,
            rows,
        )


@asynccontextmanager
async def connected(database):
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        yield connection


def said(database, context_id, version, *, own=None, limits=None, **settings):
    """Returns the code and the message of the limit that a run exceeds, or None."""

    async def check():
        checking = limits or RunLimits(
            Settings(**(OFF | {f"limit_{name}": value for name, value in settings.items()}))
        )
        claimed = ClaimedRun("effect", context_id, version, f"run-{version}", 1, "claim", None)
        context = StoredContext(context_id, version, LLMContext(), limits=own or {})
        async with connected(database) as connection:
            return await checking.used(connection, claimed, context)

    error = asyncio.run(check())
    return None if error is None else (error.code, error.message)


def a_chain(context_id, results, first=1, at=NOON):
    """Returns the run of an input, followed by so many runs that results requested."""
    return [
        run(
            context_id,
            first + place,
            at + timedelta(seconds=place),
            "FunctionCallResultFrame" if place else "LLMRunFrame",
        )
        for place in range(results + 1)
    ]


def test_a_model_that_calls_itself_for_ever_is_stopped_by_default(database):
    stored(database, *a_chain("a", 51))
    default = Settings().limit_rounds
    assert said(database, "a", default, rounds=default) is None
    code, message = said(database, "a", default + 1, rounds=default)
    assert code == "too_many_rounds"
    assert message == (
        "The model has called functions 50 times in a row without an input. FRAMELEDGER_LIMIT_ROUNDS is 50."
    )
    assert said(database, "a", default + 1, rounds=0) is None


def test_an_input_begins_to_count_anew_and_a_dropped_run_is_none(database):
    other = run("a", 4, NOON + timedelta(seconds=9), "TranscriptionFrame")
    dropped = run("a", 5, NOON + timedelta(seconds=10), "LLMRunFrame", status="dropped")
    later = a_chain("a", 2, first=6, at=NOON + timedelta(seconds=11))[1:]
    stored(database, *a_chain("a", 2), other, dropped, *later)
    assert said(database, "a", 3, rounds=2)[0] == "too_many_rounds"
    assert said(database, "a", 4, rounds=2) is None
    assert said(database, "a", 7, rounds=2) is None
    assert said(database, "a", 8, rounds=2)[0] == "too_many_rounds"


def test_runs_of_a_minute_are_counted_by_the_time_of_the_log(database):
    times = [0, 10, 20, 69, 70]
    stored(database, *(run("a", n, NOON + timedelta(seconds=at)) for n, at in enumerate(times, 1)))
    stored(database, *(run("other", n, NOON) for n in range(1, 9)))
    assert said(database, "a", 3, runs_per_minute=3) is None
    assert said(database, "a", 3, runs_per_minute=2)[0] == "too_many_runs"
    # At 70 s, the runs of 20, 69 and 70 s are within the last minute.
    assert said(database, "a", 5, runs_per_minute=3) is None
    assert said(database, "a", 5, runs_per_minute=2)[0] == "too_many_runs"
    assert said(database, "a", 5, own={"runs_per_minute": 2})[1].endswith(
        "runs_per_minute of its LLMSetLimitsFrame is 2."
    )


def test_tokens_of_a_conversation_are_those_of_its_day(database):
    yesterday, now = NOON - timedelta(days=1), NOON + timedelta(hours=1)
    stored(
        database,
        run("a", 1, yesterday, tokens=(5000, 5000)),
        run("a", 2, NOON, tokens=(60, 20)),
        run("a", 3, NOON, tokens=(None, 20)),
        run("a", 4, now, status="open"),
        run("other", 1, NOON, tokens=(900, 900)),
    )
    assert said(database, "a", 4, conversation_tokens_per_day=101) is None
    code, message = said(database, "a", 4, conversation_tokens_per_day=100)
    assert (code, message) == (
        "too_many_tokens",
        "The conversation has used 100 tokens today. FRAMELEDGER_LIMIT_CONVERSATION_TOKENS_PER_DAY is 100.",
    )


def test_of_a_limit_of_the_settings_and_one_of_the_conversation_the_smaller_counts(database):
    stored(database, run("a", 1, NOON, tokens=(60, 40)), run("a", 2, NOON, status="open"))
    own = {"tokens_per_day": 100}
    assert said(database, "a", 2, own=own)[1].endswith("tokens_per_day of its LLMSetLimitsFrame is 100.")
    assert said(database, "a", 2, own=own, conversation_tokens_per_day=50)[1].endswith("PER_DAY is 50.")
    assert said(database, "a", 2, own={"tokens_per_day": 1000}, conversation_tokens_per_day=50) is not None
    assert said(database, "a", 2, own={"tokens_per_day": 1000}, conversation_tokens_per_day=500) is None


def test_money_is_counted_by_the_prices(database):
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO prices (model, input, output, currency) VALUES ('m', 2, 10, 'EUR')")
    million = 1_000_000
    stored(
        database,
        run("a", 1, NOON, tokens=(million, million)),
        run("b", 1, NOON, tokens=(million, 0)),
        run("b", 2, NOON, tokens=(million, 0), model="free"),
        run("a", 2, NOON + timedelta(hours=3), status="open"),
    )
    assert said(database, "a", 2, conversation_cost_per_day=12.5) is None
    assert said(database, "a", 2, conversation_cost_per_day=12)[0] == "too_much_spent"
    assert said(database, "a", 2, own={"cost_per_day": 0.5})[0] == "too_much_spent"
    assert said(database, "a", 2, cost_per_day=14.01) is None
    assert said(database, "a", 2, cost_per_day=14) == (
        "too_much_spent",
        "All conversations have cost 14.00 today. FRAMELEDGER_LIMIT_COST_PER_DAY is 14.",
    )


@pytest.mark.regression("fault 303")
def test_what_all_have_used_is_added_up_once_and_seen_again_after_a_moment(database, monkeypatch):
    monkeypatch.setattr(limits, "REMEMBERED_SECONDS", 0.0)
    checking = RunLimits(Settings(**OFF | {"limit_tokens_per_day": 1000}))
    for hour in (0, 5, 11, 12):
        stored(database, run(f"at {hour}", 1, NOON.replace(hour=hour), tokens=(100, 100)))
    stored(database, run("a", 1, NOON.replace(minute=30)))
    assert said(database, "a", 1, limits=checking) is None
    assert checking._settled == spending.Spent(600, Decimal(0))
    stored(database, run("late", 1, NOON, tokens=(100, 100)))
    assert said(database, "a", 1, limits=checking)[0] == "too_many_tokens"
    assert checking._settled == spending.Spent(600, Decimal(0))
    # The next day begins with nothing.
    stored(database, run("b", 1, NOON + timedelta(days=1)))
    assert said(database, "b", 1, limits=checking) is None


def test_what_all_have_used_is_remembered_for_a_moment(database, monkeypatch):
    monkeypatch.setattr(limits, "REMEMBERED_SECONDS", 3600.0)
    checking = RunLimits(Settings(**OFF | {"limit_tokens_per_day": 100}))
    stored(database, run("a", 1, NOON))
    assert said(database, "a", 1, limits=checking) is None
    stored(database, run("b", 1, NOON, tokens=(100, 100)))
    assert said(database, "a", 1, limits=checking) is None


@pytest.mark.regression("worker 55")
def test_the_largest_counts_and_limits_that_frames_can_name_can_be_added_up(database):
    stored(database, *(run("a", version, NOON, tokens=(MAX, MAX)) for version in (1, 2)))
    stored(database, run("a", 3, NOON, status="open"))
    assert said(database, "a", 3, own={"runs_per_minute": MAX}) is None
    assert said(database, "a", 3, tokens_per_day=1)[0] == "too_many_tokens"
    assert said(database, "a", 3, conversation_tokens_per_day=1) == (
        "too_many_tokens",
        f"The conversation has used {4 * MAX} tokens today. FRAMELEDGER_LIMIT_CONVERSATION_TOKENS_PER_DAY is 1.",
    )


def test_without_limits_the_database_is_not_asked(database):
    async def check():
        claimed = ClaimedRun("effect", "a", 1, "run-1", 1, "claim", None)
        return await RunLimits(Settings(**OFF)).used(None, claimed, StoredContext("a", 1, LLMContext()))

    assert asyncio.run(check()) is None


def test_a_run_that_is_gone_has_no_limits(database):
    assert said(database, "nobody", 1, rounds=1, tokens_per_day=1) is None


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"context_messages": 3}, None),
        ({"context_messages": 2}, "The context has 3 messages. FRAMELEDGER_LIMIT_CONTEXT_MESSAGES is 2."),
        ({"context_bytes": 14}, None),
        ({"context_bytes": 13}, "The request has 14 bytes. FRAMELEDGER_LIMIT_CONTEXT_BYTES is 13."),
    ],
)
def test_a_context_that_is_too_large_is_not_sent(settings, error):
    checking = RunLimits(Settings(**OFF | {f"limit_{name}": value for name, value in settings.items()}))
    context = LLMContext([{"role": "user", "content": word} for word in ("a", "b", "c")])
    found = checking.size(StoredContext("a", 3, context), Request.of("maker", "m", {"said": "abc"}))
    assert (found and found.message) == error
    assert found is None or found.code == "context_too_large"


def test_counting_reads_the_latest_runs_and_those_of_some_hours_and_no_others(database):
    """A conversation of 5,000 runs in fifty days, and many more of others."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            """
            INSERT INTO runs (context_id, run_id, requested_version, requested_at, trigger, status, input_tokens)
            SELECT CASE n % 20 WHEN 0 THEN 'long' ELSE 'c' || n % 1000 END, 'run-' || n, n / 20,
                timestamptz '2026-01-01' + n * interval '43.2 s', 'FunctionCallResultFrame', 'ended', 10
            FROM generate_series(1, 100000) AS n
            """
        )
        connection.execute(
            """
            INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain,
                payload)
            SELECT context_id, requested_version, gen_random_uuid(), requested_at, requested_version, 0, trigger,
                'applied', sha256('x'), '{}'
            FROM runs WHERE context_id = 'long'
            """
        )
        connection.execute(
            "INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, "
            "state) VALUES ('long', 5000, 5000, '2026-01-01', '2026-02-20', 1, sha256('x'), '{}')"
        )
        connection.execute("ANALYZE runs, frames")
        newest = datetime(2026, 2, 19, 23, 50, tzinfo=UTC)
        day = limits.day_of(newest)
        one = {"id": "long", "upto": newest}
        for statement, parameters, most in (
            (spending.ROUNDS, one | {"upto": 4_950, "most": 50, "results": list(spending.RESULTS)}, 60),
            (spending.RUNS_IN_MINUTE, one | {"most": 51}, 10),
            (spending.OF_CONVERSATION, one | {"first": day}, 110),
            (
                spending.OF_ALL,
                {"first": newest - timedelta(hours=2), "before": newest, "priced": True},
                400,
            ),
        ):
            cursor = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {statement}", parameters)
            [[plan]] = cursor.fetchall()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            assert rows_read(plan[0]["Plan"]) <= most, json.dumps(plan)


def rows_read(plan):
    """Returns how many rows the plan read from tables and indexes, including those that a filter removed."""
    own = 0
    if "Relation Name" in plan:
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(rows_read(below) for below in plan.get("Plans", ()))
