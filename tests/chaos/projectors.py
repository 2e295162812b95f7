"""Pairs of faults, repeatedly: run by `make chaos`, not by `make test`.

Each round draws the faults of two projectors from a seed that is printed with the schedule. CHAOS_SEED=... repeats the
same rounds, CHAOS_ROUNDS=... sets their number.
"""

import os
import random
import signal

import psycopg
from tests.support.killable import AT_ONCE, OWNER, STATEMENT_PER_TABLE, STEPS, Plan, finish, projector
from tests.support.pipeline import FEW, histories, mixed, own_pipeline  # noqa: F401  # a fixture

SEED = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "30"))
CHECK_EVERY = 5

POINTS = (
    *STEPS,
    *(f"before COPY {table}" for table in ("frames", "messages", "contexts", "runs", "outbox")),
    *(f"in the middle of COPY {table}" for table in ("frames", "messages", "contexts", "runs", "outbox")),
    *("UPDATE messages", "UPDATE contexts", "WITH held", "DELETE FROM outbox"),
    *(f"before {AT_ONCE}", f"after sending {AT_ONCE}"),
)


def test_pairs_of_faults_change_nothing(pipeline):
    draw = random.Random(SEED)
    print(f"\nCHAOS_SEED={SEED} CHAOS_ROUNDS={ROUNDS}")
    for number in range(1, ROUNDS + 1):
        plans = [
            Plan(
                point=draw.choice(POINTS),
                small=draw.choice([None, STATEMENT_PER_TABLE]),
                signal=draw.choice([signal.SIGKILL, signal.SIGSTOP]),
                group=draw.choice([None, "another"]),
            )
            for _ in range(2)
        ]
        drops = draw.random() < 0.3
        said = [f"{plan.signal.name} {plan.point} ({plan.group or 'its group'})" for plan in plans]
        print(f"{number}: {'; '.join(said)}{'; the connection drops' if drops else ''}", flush=True)
        _round(pipeline, number, plans, drops)
        if number % CHECK_EVERY == 0 or number == ROUNDS:
            finish(pipeline)
            pipeline.check(every=20)


def _round(pipeline, number, plans, drops):
    """Both count points from the start. A third projector finishes their work; then the frozen ones resume."""
    with (
        projector(pipeline.settings, plans[0]) as first,
        projector(pipeline.settings, plans[1]) as second,
    ):
        for one in (first, second):
            one.arm()
        records = mixed(str(number), FEW)
        pipeline.publish(records[: len(records) // 2])
        if drops:
            with psycopg.connect(pipeline.address, autocommit=True) as connection:
                connection.execute(f"SELECT pg_terminate_backend(({OWNER}))")
        with projector(pipeline.settings) as third:
            pipeline.publish(records[len(records) // 2 :])
            pipeline.until_idle(third)
            for one, plan in ((first, plans[0]), (second, plans[1])):
                if one.is_alive() and plan.signal == signal.SIGSTOP:
                    one.send(signal.SIGCONT)
            pipeline.publish(histories(f"{number}-after", FEW[:1]))
            pipeline.until_idle(third)
