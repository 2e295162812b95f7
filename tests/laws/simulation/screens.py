"""Simulated clients with their own functions: no worker knows them, and the clients answer their calls."""

from __future__ import annotations

from typing import ClassVar

from tests.laws.simulation.actors import Steps
from tests.laws.simulation.inference import FUNCTIONS, InferenceWorker
from tests.laws.simulation.people import Person, Ways
from tests.laws.simulation.world import World

from frameledger.frames import FunctionCallResultFrame, LLMSetToolsFrame
from frameledger.tools import of_client

ON_SCREEN = "show_on_screen"

SCREEN = of_client({"type": "function", "function": {"name": ON_SCREEN, "parameters": {"type": "object"}}})


class OfferingWorker(InferenceWorker):
    """A person whose model calls the client's function as often as all others together."""

    functions: ClassVar[tuple[str, ...]] = (*FUNCTIONS, *(ON_SCREEN for _ in FUNCTIONS))


class PersonAtScreen(Person):
    """A person whose client registers its functions and withdraws them again, whether or not a call is open."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._say(LLMSetToolsFrame(tools=(SCREEN,)))

    def _ways(self) -> Ways:
        return (*super()._ways(), (1, self._brings_functions))

    def _brings_functions(self) -> Steps:
        self._say(LLMSetToolsFrame(tools=(SCREEN,) if self._world.rng.random() < 0.8 else ()))
        yield


class Screen:
    """A client that executes its functions and answers their calls. A person has two independent ones; a killed one
    executes again."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.frozen_until = name, 0.0
        self._world = world
        self._work = self._answer()

    def step(self) -> None:
        next(self._work)

    def _answer(self) -> Steps:
        done: set[object] = set()
        while True:
            yield
            for call in [one for one in self._world.calls.values() if one.by_client]:
                if call.status != "waiting" or call.key in done:
                    continue
                for _ in range(self._world.rng.choice((0, 3, 20))):
                    yield
                done.add(call.key)
                self._world.send(
                    self.name,
                    FunctionCallResultFrame(
                        function_name=call.function_name,
                        tool_call_id=call.tool_call_id,
                        result={"shown": self.name},
                        opened_version=call.key.requested_version,
                    ),
                )
