"""Calls while workers and projectors die and freeze, repeatedly: run by `make chaos`, not by `make test`.

Each round draws the faults of three workers and a projector, and which conversations are interrupted, from a seed that
is printed with the schedule. CHAOS_SEED=... repeats the same rounds, CHAOS_ROUNDS=... sets their number.
"""

import os
import random
import signal
from contextlib import ExitStack

from tests.support.call_accounts import ask_for, check, interrupt, until_at_rest
from tests.support.killable import AT_ONCE, finish, projector
from tests.support.killable import Plan as ProjectorPlan
from tests.support.killable_tools import DOOMED, HEIRS, Effects, Plan, tools
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

SEED = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "30"))
CHECK_EVERY = 5
TALKS = 12

POINTS = (
    *("before claim", "after claim", "before commit", "after commit", "claimed"),
    *("send FunctionCallInProgressFrame", "sent FunctionCallInProgressFrame", "in progress", "folded"),
    *("before the handler", "in the handler", "effect", "answered"),
    *("send FunctionCallResultFrame", "sent FunctionCallResultFrame", "result"),
    *("before settling", "after settling", "after take-over"),
)
PROJECTOR_POINTS = (
    "before load",
    "after commit",
    "after send",
    f"before {AT_ONCE}",
    f"after sending {AT_ONCE}",
)
NAMES = {"unsafe": False, "safe": True}


def test_calls_are_run_once_whatever_befalls_those_who_work_on_them(pipeline, tmp_path):
    draw = random.Random(SEED)
    effects = Effects(tmp_path / "effects.sqlite")
    print(f"\nCHAOS_SEED={SEED} CHAOS_ROUNDS={ROUNDS}")
    for number in range(1, ROUNDS + 1):
        plans = [Plan(draw.choice(POINTS), draw.choice([signal.SIGKILL, signal.SIGSTOP])) for _ in range(3)]
        at = draw.choice(PROJECTOR_POINTS)
        talks = {
            f"{word}-{number}-{place}": (word, draw.random() < 0.3)
            for place, word in enumerate(draw.choices(list(NAMES), k=TALKS))
        }
        said = [f"{plan.signal.name} {plan.point}" for plan in plans]
        print(f"{number}: {'; '.join(said)}; the projector {at}", flush=True)
        _round(pipeline, effects, tmp_path / "effects.sqlite", str(number), plans, at, talks)
        if number % CHECK_EVERY == 0 or number == ROUNDS:
            finish(pipeline)
            pipeline.check(every=20)


def _round(pipeline, effects, path, number, plans, at, talks):
    """The workers share a service. Another worker finishes their work; then the frozen ones resume."""
    short, long = (pipeline.settings.model_copy(update=update) for update in (DOOMED, HEIRS))
    with ExitStack() as stack:
        dying = stack.enter_context(projector(pipeline.settings, ProjectorPlan(at)))
        dying.arm()
        workers = [stack.enter_context(tools(short, NAMES, path, f"round-{number}", plan)) for plan in plans]
        calls = {talk: ask_for(pipeline, talk, word)[0] for talk, (word, _) in talks.items()}
        heir = stack.enter_context(tools(long, NAMES, path, f"heir-{number}"))
        living = stack.enter_context(projector(pipeline.settings))
        interrupt(pipeline, *(talk for talk, (_, interrupted) in talks.items() if interrupted))
        until_at_rest(pipeline, calls.values())
        for worker, plan in zip(workers, plans, strict=True):
            if plan.signal == signal.SIGSTOP:
                worker.send(signal.SIGCONT)
                assert worker.stop() == 0
        assert heir.stop() == 0
        pipeline.until_idle(living)
        for talk, (word, interrupted) in talks.items():
            check(
                pipeline, effects, [calls[talk]], safe=NAMES[word], interrupted=None if interrupted else False
            )
