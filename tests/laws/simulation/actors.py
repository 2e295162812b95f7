"""The actors of the simulation. Each is a generator, and each `yield` is a point between two statements at which the
scheduler may kill or freeze it. A killed actor loses its memory; what it has sent may still arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tests.laws.simulation.claims import LEASE, LeaseLostError
from tests.laws.simulation.tables import Taken
from tests.laws.simulation.world import World

from frameledger.effects import Effect

Steps = Iterator[None]


class Actor(Protocol):
    """One life of a process. `step` performs the next action; a raised `LeaseLostError` ends the life."""

    name: str
    frozen_until: float

    def step(self) -> None: ...


class Projector:
    """Folds batches of the log into the tables, and publishes the rows of the outbox."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.frozen_until = name, 0.0
        self._world = world
        self._work = self._live()

    def step(self) -> None:
        next(self._work)

    def _live(self) -> Steps:
        world = self._world
        world.epoch += 1
        epoch = world.epoch
        world.say(self.name, f"owns the log, epoch {epoch}")
        yield
        yield from self._relay(epoch)
        while True:
            offset = world.next_offset
            batch = world.fold_batch(world.rng.choice((1, 2, 5, 20)))
            yield
            if batch:
                if not world.commit(epoch, offset, batch):
                    world.say(self.name, "is fenced")
                    raise LeaseLostError
                yield
            yield from self._relay(epoch)

    def _relay(self, epoch: int) -> Steps:
        world = self._world
        while world.outbox and world.epoch == epoch:
            effect = world.outbox[0]
            world.publish_effect(effect)
            yield
            if effect in world.outbox:
                world.outbox.remove(effect)
        yield


class Worker:
    """The common part of both kinds of workers: a lease, effects that are read one by one, and concurrent jobs."""

    topic: str
    slots = 3

    def __init__(self, world: World, name: str) -> None:
        self.name, self.frozen_until = name, 0.0
        self._world = world
        self._stops: set[str] = set()
        self._renewed_at = world.now
        self._jobs: dict[Taken, Steps] = {}
        self._failovers = world.failovers
        world.register(name)
        world.say(name, "begins")
        self._intake = self._take()

    def step(self) -> None:
        world = self._world
        if world.failovers != self._failovers:
            self._failovers = world.failovers
            world.reconnected(self.name, self._held())
            return
        if world.now - self._renewed_at > 0.4 and world.rng.random() < 0.5:
            self._beat()
            return
        self._stops |= world.listeners[self.name]
        taken = world.rng.choice([None, *self._jobs])
        if taken is None:
            next(self._intake)
            return
        try:
            next(self._jobs[taken])
        except StopIteration:
            self._jobs.pop(taken, None)

    def _serves(self, effect: Effect) -> bool:
        raise NotImplementedError

    def _perform(self, taken: Taken) -> Steps:
        raise NotImplementedError

    def _held(self) -> dict[str, str]:
        return {taken.effect.id: taken.token for taken in self._jobs}

    def _begin(self, taken: Taken) -> None:
        """Start the job. A running job of the same effect has lost its claim, and is stopped."""
        for before in tuple(self._jobs):
            if before.effect.id == taken.effect.id:
                del self._jobs[before]
        self._jobs[taken] = self._perform(taken)

    def may_publish(self) -> bool:
        return self._world.now - self._renewed_at < LEASE

    def told_to_stop(self, target: str) -> bool:
        return target in self._stops

    def _beat(self) -> None:
        world = self._world
        if not self.may_publish():
            world.say(self.name, "has lost its lease")
            raise LeaseLostError
        # The lease counts from before the statement is sent, so it ends here before another worker takes the work.
        self._renewed_at = world.now
        answer = world.heartbeat(self.name, self._held())
        if answer is None:
            world.say(self.name, "is dead by the database's clock")
            raise LeaseLostError
        over, lost = answer
        self._stops |= over
        for taken in tuple(self._jobs):
            if taken.token in lost:
                world.say(self.name, f"has lost {taken.token}")
                del self._jobs[taken]
                world.release(self.name, taken)
        world.give_back_unknown(self.name, self._held(), older_than=LEASE)

    def _publish(self, *frames: object) -> Steps:
        """Publish a frame, and return when it is on the log."""
        self._send(*frames)
        while not self._world.is_on_the_log(self.name):
            yield
        yield

    def _send(self, *frames: object) -> None:
        """Publish a frame without waiting."""
        if not self.may_publish():
            self._world.say(self.name, "has lost its lease")
            raise LeaseLostError
        self._world.send(self.name, *frames)

    def _take(self) -> Steps:
        world, topic = self._world, self._world.topics[self.topic]
        while True:
            yield
            if len(self._jobs) >= self.slots:
                continue
            if topic.offset < len(topic.records):
                offset = topic.offset
                effect = topic.records[offset]
                self._took(world.claim(self.name, effect) if self._serves(effect) else None)
                yield
                topic.offset = max(topic.offset, offset + 1)
            else:
                self._took(world.take_over(self.name, lambda claim: self._serves(claim.effect)))
                yield
                missed = [effect for effect in world.missed() if self._serves(effect)]
                if missed and len(self._jobs) < self.slots:
                    yield
                    self._took(world.claim(self.name, missed[0]))

    def _took(self, taken: Taken | None) -> None:
        if taken is not None:
            self._begin(taken)
