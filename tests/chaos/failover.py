"""Faults of the database, repeatedly: run by `make chaos`, not by `make test`.

A standby without the latest commits takes over; PostgreSQL is killed, or a permission is revoked, again and again;
connections of readers are cut without notice. Each round has its own topics and database, and draws from a seed that is
printed. CHAOS_SEED=... repeats the same rounds. CHAOS_ROUNDS=... is divided among the tests here and in `topics`, each
of which has at least one round.
"""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, PROGRAM
from tests.chaos.calls import NAMES, POINTS
from tests.integration.test_database_crash import crashing
from tests.support.answerers import rows
from tests.support.call_accounts import ask_for, check, interrupt, until_at_rest
from tests.support.killable import AT_ONCE, SINGLE_STATEMENT, STATEMENT_PER_TABLE, Plan, finish, projector
from tests.support.killable_tools import DOOMED, HEIRS, Effects, tools
from tests.support.killable_tools import Plan as WorkerPlan
from tests.support.pipeline import FEW, histories, made, mixed
from tests.support.silent_proxy import both, proxy_to
from tests.support.standby import pair

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import Client, DatabaseError
from frameledger_services.store import migration

SEED = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "30"))
TESTS = 6
TALKS = 6
LIMITED = "projecting"
END = b"That is all."
THE_END = LLMMessagesAppendFrame(messages=[{"role": "user", "content": END.decode()}])

SEEN = {
    "they are asked for": "SELECT true",
    "they are dispatched": "SELECT count(*) = {count} FROM tool_calls WHERE status <> 'announced'",
    "one is claimed": "SELECT count(*) > 0 FROM claims WHERE tool_call_id IS NOT NULL",
    "one runs": "SELECT count(*) > 0 FROM tool_calls WHERE status <> 'announced' AND status <> 'dispatched'",
    "one has ended": "SELECT count(*) > 0 FROM tool_calls WHERE result IS NOT NULL",
}
"""Moments, each with a query that is true from then on."""

DEADLY_POINTS = {
    STATEMENT_PER_TABLE: (
        "before load",
        "after lock",
        "before COPY frames",
        "in the middle of COPY frames",
        "before commit",
    ),
    SINGLE_STATEMENT: (
        "after load",
        "before lock",
        f"before {AT_ONCE}",
        f"after sending {AT_ONCE}",
        "after commit",
    ),
}
"""Points that a projector reaches in every batch, by its way of writing."""

RIGHTS = (
    "INSERT ON frames",
    "UPDATE ON projections",
    "SELECT ON contexts",
    "UPDATE ON contexts",
    "INSERT ON outbox",
)


def rounds(test: str) -> Iterator[tuple[int, random.Random]]:
    """Yields the rounds of a test, each with its source of random numbers."""
    print(f"\nCHAOS_SEED={SEED} CHAOS_ROUNDS={ROUNDS}")
    for number in range(1, max(1, ROUNDS // TESTS) + 1):
        yield number, random.Random(f"{SEED} {test} {number}")


def drawn_talks(draw: random.Random, name: str) -> dict[str, tuple[str, bool]]:
    """Returns conversations, each with the function that its model calls and whether it is interrupted."""
    words = draw.choices(list(NAMES), k=TALKS)
    return {f"{word}-{name}-{place}": (word, draw.random() < 0.3) for place, word in enumerate(words)}


def drawn_workers(draw: random.Random, count: int) -> list[WorkerPlan]:
    numbers = [signal.SIGKILL, signal.SIGSTOP]
    return [WorkerPlan(draw.choice(POINTS), draw.choice(numbers)) for _ in range(count)]


def said_of(plans) -> str:
    return "; ".join(f"{plan.signal.name} {plan.point}" for plan in plans)


@pytest.fixture
def reference(make_database, migrated_template):
    """Makes the database of the offline fold."""
    return lambda: make_database(template=migrated_template)


def test_what_a_failover_loses_is_not_done_again(kafka, reference, tmp_path):
    for number, draw in rounds("failover"):
        with pair(tmp_path / f"servers-{number}") as servers:
            migration.migrate(servers.primary.dsn)
            pipeline = made(kafka.bootstrap_servers, servers.address, reference)
            _fail_over(servers, pipeline, draw, number, tmp_path / f"effects-{number}.sqlite")
            finish(pipeline)
            pipeline.check(every=20)


def _fail_over(servers, pipeline, draw, number, path):
    """The standby has some of the calls. The projector is killed with the primary, or survives."""
    short, long = (pipeline.settings.model_copy(update=update) for update in (DOOMED, HEIRS))
    effects, talks = Effects(path), drawn_talks(draw, str(number))
    known, plans = draw.randrange(TALKS), drawn_workers(draw, 2)
    moment, lives = draw.choice(list(SEEN)), draw.random() < 0.5
    print(
        f"{number}: {said_of(plans)}; {known} known; fails over when {moment}; the projector lives: {lives}",
        flush=True,
    )
    with ExitStack() as stack:
        folding = stack.enter_context(projector(pipeline.settings))
        workers = [stack.enter_context(tools(short, NAMES, path, "workers", plan)) for plan in plans]
        steady = stack.enter_context(tools(long, NAMES, path, "workers"))
        steady.alive()
        names = list(talks)
        calls = {talk: ask_for(pipeline, talk, talks[talk][0])[0] for talk in names[:known]}
        if known:
            question = "SELECT count(*) = %s FROM tool_calls WHERE status <> 'announced'"
            servers.until_the_standby_has(question, known)
        servers.withhold()
        calls |= {talk: ask_for(pipeline, talk, talks[talk][0])[0] for talk in names[known:]}
        pipeline.until(SEEN[moment].format(count=TALKS))
        if not lives:
            folding.kill()
        servers.fail_over()
        living = stack.enter_context(projector(pipeline.settings))
        interrupt(pipeline, *(talk for talk, (_, interrupted) in talks.items() if interrupted))
        until_at_rest(pipeline, calls.values())
        end(workers, plans)
        assert steady.stop() == 0
        pipeline.until_idle(living)
        for talk, (word, interrupted) in talks.items():
            check(
                pipeline, effects, [calls[talk]], safe=NAMES[word], interrupted=None if interrupted else False
            )


def end(workers, plans) -> None:
    """Frozen workers resume, and find that their work was taken over."""
    for worker, plan in zip(workers, plans, strict=True):
        if plan.signal == signal.SIGSTOP:
            worker.send(signal.SIGCONT)
            assert worker.stop() == 0


def test_deaths_that_no_conversation_caused_park_none(kafka, reference, tmp_path):
    for number, draw in rounds("deaths"):
        with crashing(tmp_path / f"server-{number}") as server:
            pipeline = made(kafka.bootstrap_servers, server.address, reference)
            _execute(
                server, f"CREATE ROLE {LIMITED} LOGIN PASSWORD '{LIMITED}' IN ROLE frameledger_projector"
            )
            limited = make_conninfo(server.address, user=LIMITED, password=LIMITED)
            settings = pipeline.settings.model_copy(update={"database_url": SecretStr(limited)})
            _die(server, pipeline, settings, draw, number)
            assert rows(pipeline, "SELECT context_id FROM contexts WHERE parked_version IS NOT NULL") == []
            pipeline.check(every=20)


def _die(server, pipeline, settings, draw, number):
    """One kind of fault, repeated over the same records, so often that a poison record would have been suspected."""
    for burst in range(2):
        small, points = draw.choice(list(DEADLY_POINTS.items()))
        deaths = [draw.choice(points) for _ in range(draw.randint(6, 8))]
        right = draw.choice((None, draw.choice(RIGHTS)))
        pipeline.publish(mixed(f"{number}-{burst}", FEW))
        if right is None:
            print(f"{number}: PostgreSQL is killed {'; '.join(deaths)}", flush=True)
            for place, point in enumerate(deaths):
                with projector(settings, Plan(point, signal.SIGSTOP, member="it", small=small)) as frozen:
                    frozen.arm()
                    pipeline.publish(histories(f"{number}-{burst}-{place}", FEW[:1]))
                    frozen.frozen()
                    server.crash()
                    if draw.random() < 0.3:
                        frozen.send(signal.SIGCONT)
                        pipeline.until_idle(frozen)
        else:
            print(f"{number}: nobody may {right}, {len(deaths)} times", flush=True)
            _execute(server, f"REVOKE {right} FROM frameledger_projector")
            for _ in deaths:
                with projector(settings, Plan(member="it", small=small)) as refused:
                    assert refused.ended() == 1
            _execute(server, f"GRANT {right} TO frameledger_projector")
        with projector(settings, Plan(member="it")) as living:
            pipeline.until_idle(living)
            assert living.stop() == 0


def _execute(server, statement):
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(statement)


def test_readers_that_are_cut_off_without_a_word_read_each_frame_once(kafka, reference):
    for number, draw in rounds("readers"):
        pipeline = made(kafka.bootstrap_servers, reference(), reference)
        asyncio.run(_cut_off(pipeline, draw, number))
        finish(pipeline)
        pipeline.check(every=20)


async def _cut_off(pipeline, draw, number):
    """The proxy of the first host drops its connections, or is silent for good; the second host always responds."""
    async with proxy_to(pipeline.address) as (proxy, through):
        address = SecretStr(both(through, pipeline.address))
        settings = pipeline.settings.model_copy(update={"database_url": address})
        records = histories(str(number), FEW)
        cuts = sorted(draw.sample(range(len(records)), draw.randint(1, 3)))
        how = [draw.choice([proxy.forget, proxy.forget, proxy.fall_silent]) for _ in cuts]
        print(
            f"{number}: {'; '.join(f'{cut.__name__} at {at}' for cut, at in zip(how, cuts, strict=True))}",
            flush=True,
        )
        with projector(settings) as folding:
            async with Client(settings) as client, asyncio.timeout(PROGRAM), asyncio.TaskGroup() as tasks:
                reading = [tasks.create_task(_read(client, f"{name}-{number}")) for name in FEW]
                for begin, stop, cut in zip([0, *cuts], cuts, how, strict=False):
                    await asyncio.to_thread(pipeline.publish, records[begin:stop])
                    cut()
                await asyncio.to_thread(pipeline.publish, records[cuts[-1] :])
                for name in FEW:
                    # The lost database notifies it when this is stored.
                    await client.publish(f"{name}-{number}", THE_END, wait=True, within=ON_SERVERS)
            await asyncio.to_thread(pipeline.until_idle, folding)
    for name, task in zip(FEW, reading, strict=True):
        stored = rows(
            pipeline, "SELECT version FROM frames WHERE context_id = %s ORDER BY 1", f"{name}-{number}"
        )
        assert task.result() == [version for (version,) in stored]


async def _read(client, context_id):
    """Returns the versions of a conversation's frames up to its end, as a client reads them. A query that was running
    when the connection was lost raises an error; the reader continues at its position."""
    versions: list[int] = []
    while True:
        with suppress(DatabaseError):
            async for one in client.follow(context_id, versions[-1] if versions else 0):
                versions.append(one.version)
                if END in one.payload:
                    return versions
