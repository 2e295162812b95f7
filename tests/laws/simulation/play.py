"""One run of the simulation: all actors act in an order that the seed determines, with faults. Then the faults end, and
all work has to come to an end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.laws.simulation.actors import Actor, Projector
from tests.laws.simulation.claims import LEASE, LeaseLostError
from tests.laws.simulation.demanding import DemandingPerson, TirelessWorker, check_nothing_said_is_lost
from tests.laws.simulation.erasing import Operator, check_forgotten, from_the_log, verified
from tests.laws.simulation.functions import FunctionWorker
from tests.laws.simulation.inference import InferenceWorker
from tests.laws.simulation.people import ForgetfulPerson, Person
from tests.laws.simulation.screens import OfferingWorker, PersonAtScreen, Screen
from tests.laws.simulation.timekeeping import Timekeeper
from tests.laws.simulation.world import World

STEPS = 3_000
STEPS_TO_REST = 60_000

CAST: tuple[tuple[str, Callable[[World, str], Actor], int], ...] = (
    ("projector", Projector, 2),
    ("inference", InferenceWorker, 2),
    ("functions", FunctionWorker, 2),
    ("timekeeper", Timekeeper, 2),
    ("person", Person, 1),
)
WITHIN_LIMITS = (("inference", TirelessWorker, 2), ("person", DemandingPerson, 1))
AT_SCREENS = (("inference", OfferingWorker, 2), ("screen", Screen, 2), ("person", PersonAtScreen, 1))
CASTS = {
    0: (*CAST[:-1], ("person", ForgetfulPerson, 1), ("operator", Operator, 1)),
    3: (*(one for one in CAST if one[0] not in ("inference", "person")), *WITHIN_LIMITS),
}
OF_TEN = {4: (*(one for one in CAST if one[0] not in ("inference", "person")), *AT_SCREENS)}
"""By `seed % 5`: for 0 the conversation is sometimes erased, for 3 it has limits and second inputs. By `seed % 10`: for
4 clients have functions of their own."""


class Play:
    """The actors of a world, and the scheduler that chooses the next one."""

    def __init__(self, seed: int, *, steps_to_rest: int = STEPS_TO_REST) -> None:
        self.rng = Random(seed)
        self.world = World(self.rng, lossy=self.rng.choice((0.0, 0.3, 1.0)))
        self._lives = 0
        self._steps_to_rest = steps_to_rest
        self._faults = self.rng.choice((0.0, 0.003, 0.012))
        self._loses_commits = self.rng.random() < 0.5
        cast = OF_TEN.get(seed % 10) or CASTS.get(seed % 5, CAST)
        self._kinds = [(kind, make) for kind, make, many in cast for _ in range(many)]
        self._actors = [self._new(kind, make) for kind, make in self._kinds]

    def run(self) -> None:
        """Act, then come to rest. Raises `PromiseBrokenError` with the end of the trace when a promise is broken."""
        world = self.world
        for _ in range(STEPS):
            self._step()
        world.say("", "no more faults, and nobody says anything new")
        self._faults = 0.0
        people = [number for number, (kind, _) in enumerate(self._kinds) if kind == "person"]
        for number in people:
            self._actors[number].frozen_until = float("inf")
        for number in range(self._steps_to_rest):
            self._step(hurry=2.0)
            if number % 25 == 0 and not any(world.open_things()):
                break
        else:
            raise world.broken(f"everything comes to rest, and not: {'; '.join(world.open_things())}")
        self._check_the_end()

    def _new(self, kind: str, make: Callable[[World, str], Actor]) -> Actor:
        self._lives += 1
        return make(self.world, f"{kind}-{self._lives}")

    def _step(self, hurry: float = 1.0) -> None:
        world, rng = self.world, self.rng
        world.now += rng.random() * 0.02 * hurry
        if self._loses_commits:
            world.replicate()
        dice = rng.random()
        if dice < 0.3:
            world.deliver()
            return
        number = rng.randrange(len(self._actors))
        actor = self._actors[number]
        if actor.frozen_until > world.now:
            return
        if dice > 1 - self._faults:
            self._fail(number, actor)
            return
        try:
            actor.step()
        except LeaseLostError:
            # The life is over, and the process begins another one after a while, because partitions are assigned
            # slowly.
            self._actors[number] = self._new(*self._kinds[number])
            self._actors[number].frozen_until = world.now + rng.choice((0.0, LEASE, 3 * LEASE))

    def _fail(self, number: int, actor: Actor) -> None:
        """Slow its connection down, freeze it, or kill it; what a dead one sent arrives, or the beginning of that."""
        world, rng = self.world, self.rng
        if self._loses_commits and rng.random() < 0.5:
            world.fail_over()
            return
        dice = rng.random()
        if dice < 0.3:
            world.stuck_until[actor.name] = world.now + rng.choice((0.5, LEASE, 2 * LEASE))
            world.say(actor.name, f"publishes nothing until {world.stuck_until[actor.name]:.1f}")
            return
        if dice < 0.6:
            actor.frozen_until = world.now + rng.choice((0.5, LEASE, 3 * LEASE))
            world.say(actor.name, f"freezes until {actor.frozen_until:.1f}")
            return
        world.say(actor.name, "is killed")
        waiting = world.wire.get(actor.name)
        while waiting and rng.random() < 0.5:
            waiting.pop()
        self._actors[number] = self._new(*self._kinds[number])
        self._actors[number].frozen_until = world.now + rng.choice((0.0, 1.0, 2 * LEASE))

    def _check_the_end(self) -> None:
        world = self.world
        whole, receipts = from_the_log(world)
        if (whole.state, whole.rows) != (world.conversation.state, world.conversation.rows):
            raise world.broken("the tables are the fold of the log")
        if world.lives_kept.receipts != receipts:
            raise world.broken("the receipts are those of the log")
        verified(world)
        check_forgotten(world)
        for call in world.calls.values():
            if not call.is_over:
                raise world.broken(f"every call that began is settled: {call}")
            if world.executions.get(call.key) and call.function_name == "pay" and call.status == "forgotten":
                raise world.broken(f"what was paid is not forgotten: {call}")
        check_nothing_said_is_lost(world)
        for version, words in world.words_written.items():
            if not self._is_answered(version):
                raise world.broken(
                    f"every turn with words is answered or failed visibly: {words!r} at {version}"
                )

    def _is_answered(self, version: int) -> bool:
        """A run that saw the words visibly ended, or an interruption or the end of the conversation followed them."""
        world = self.world
        return any(
            run.opened_version is not None
            and run.opened_version >= version
            and run.status in ("ended", "failed")
            for run in world.runs.values()
        ) or any(one >= version for one in (*world.interruptions, *world.ended_at))


def play(seed: int) -> World:
    """Run the seed to its end. Returns the world. Raises `PromiseBrokenError`."""
    one = Play(seed)
    one.run()
    return one.world
