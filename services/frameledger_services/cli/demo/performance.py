"""A performance of the demo: the servers start, the conversation is played and queried, and its result is proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from frameledger_services.cli.demo import closing, next_steps, render
from frameledger_services.cli.demo.plan import DemoPlan
from frameledger_services.cli.up import services
from frameledger_services.client import Client
from frameledger_services.database_types import Connection
from frameledger_services.demo import forgetting, playing, proof, recording
from frameledger_services.demo.harbour import FILE, Harbour
from frameledger_services.demo.playing import Played
from frameledger_services.demo.recording import Stage
from frameledger_services.demo.times import Times
from frameledger_services.store.connections import connect
from frameledger_services.store.offers import tools_on_offer

# The embedded servers are imported inside the functions: they need Linux or macOS, and the command line runs anywhere.
if TYPE_CHECKING:
    from frameledger_services.demo.servers import Servers
    from frameledger_services.embedded.forked import ForkServer
    from frameledger_services.embedded.record import Process


async def perform(plan: DemoPlan, console: Console, times: Times, fork_server: ForkServer | None) -> bool:
    """Run the whole demo. Returns whether the proof succeeded."""
    from frameledger_services.demo.servers import answering, servers

    if not console.is_terminal:
        console.print("Starting the servers ...")
    async with AsyncExitStack() as running:
        with console.status("Starting the servers ...") as status, times.of("servers"):

            def show(processes: Sequence[Process]) -> None:
                status.update(Text(render.starting(processes)))

            used = await running.enter_async_context(
                servers(
                    plan.settings,
                    setup=services.setup(),
                    services=services.always(),
                    on_change=show,
                    fork_server=fork_server,
                )
            )
            harbour = Harbour(used.settings.directory / FILE)
            harbour.prepare()
            connection = await running.enter_async_context(await connect(used.settings))
            kill = await running.enter_async_context(
                answering(used, plan.workers, connection, show, fork_server)
            )
        stage = Stage(plan.model, await tools_on_offer(connection, [plan.function_service]))
        performance = _Performance(plan, used, connection, harbour, stage, kill, console, times)
        performance.print_opening()
        played = await performance.play()
        right = await performance.prove(played)
        with console.status("Stopping the servers ..."), times.of("stopping"):
            await running.aclose()
    next_steps.print_next_steps(console, plan, used, played)
    return right


@dataclass(frozen=True, slots=True)
class _Performance:
    """The demo while its servers run. `kill` kills the worker of a service, and returns its pid."""

    plan: DemoPlan
    used: Servers
    connection: Connection
    harbour: Harbour
    stage: Stage
    kill: Callable[[str], int]
    console: Console
    times: Times

    def print_opening(self) -> None:
        """Print which servers and which model are used, and how to read the conversation."""
        plan, used = self.plan, self.used
        since = (
            f"started in {self.times['servers']:.1f} s" if used.ours else "of the running `frameledger up`"
        )
        self.console.print(f"{render.addresses(used.record)}: {since}", style="dim")
        who = "A scripted model answers" if plan.provider == "scripted" else f"{plan.model} answers"
        self.console.print(
            Text.assemble(
                "A phone call. ", who, ", with real functions. SQL rows of ", (plan.context_id, "bold"), ":"
            )
        )
        self.console.print(render.LEGEND, style="dim")
        self.console.print()

    async def play(self) -> Played:
        """Play the conversation, and show it while it grows. The worker of the functions is killed during a call."""
        lines = recording.lines()
        async with Client(self.used.settings) as client:
            with self.times.of("conversation"), render.Conversation(self.console, len(lines)) as page:
                return await playing.play(
                    self.used.settings,
                    client,
                    self.connection,
                    self.plan.context_id,
                    lines,
                    self.stage,
                    self.harbour,
                    speed=self.plan.speed,
                    show=page.show,
                    kill=lambda: self._kill_worker(page),
                )

    async def prove(self, played: Played) -> bool:
        """Query the history, prove the result, and erase a second conversation. Returns whether all was right."""
        await closing.look_back(self.console, self.connection, self.plan.context_id, played)
        with self.times.of("proof"):
            result = await proof.proved(self.connection, self.plan.context_id, played, self.harbour)
            async with Client(self.used.settings) as client:
                forgotten = await forgetting.forget(client, self.plan.second_id, self.stage)
        closing.print_verdict(self.console, played, result)
        closing.print_forgotten(self.console, forgotten)
        return result.right and forgotten.right

    def _kill_worker(self, page: render.Conversation) -> None:
        page.note(f"kill -9 {self.kill(self.plan.function_service)}")
        page.note(
            "The worker is killed during order_breakfast, just after it wrote the order. After "
            f"{self.used.settings.work_lease_secs:g} s without a heartbeat another worker takes over."
        )
