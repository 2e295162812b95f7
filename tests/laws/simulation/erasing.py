"""The promises of an erasure, and the operator who rebuilds while all others act. The content of an erased life is
recognized by its unique words and by the ids of its runs and calls. None of them may be in a table again unless a
client publishes it again.
"""

from __future__ import annotations

from random import Random

from tests.laws.author import WORD
from tests.laws.simulation.actors import Steps
from tests.laws.simulation.lives import CONTEXT, Lives, Receipt
from tests.laws.simulation.world import World

from frameledger import stored
from frameledger.effects import Cancel
from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, LLMContextEraseFrame, encode_frame


class Operator:
    """Verifies, rebuilds, and searches for erased content, each in one transaction."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.frozen_until = name, 0.0
        self._world = world
        self._work = self._live()

    def step(self) -> None:
        next(self._work)

    def _live(self) -> Steps:
        world = self._world
        while True:
            for _ in range(world.rng.choice((20, 100, 400))):
                yield
            check_forgotten(world)
            yield
            rebuild(world)


def rebuild(world: World) -> None:
    """Fold the stored frames again, from the newest receipt on, and replace the tables by the result."""
    refolded = verified(world)
    for name in FOLDED:
        setattr(world, name, getattr(refolded, name))
    world.say("operator", f"rebuilds, {len(world.lives_kept.receipts)} receipts")


FOLDED = ("conversation", "runs", "calls", "outcomes", "changed_version", "cut_off", "lives_kept")


def verified(world: World) -> World:
    """Returns the tables according to the stored frames, which must equal the existing ones."""
    again = World(Random(0))
    again.conversation, again.lives_kept = world.lives_kept.beginning()
    folding = Folding(again.conversation)
    again.changed_version = int(folding.state.changed_version)
    for row in world.lives_kept.frames:
        before, step = folding.state, folding.step(row.frame, row.logged_at)
        if step is None:
            raise world.broken(f"what is stored is of the present life, and version {row.version} is not")
        again.now = row.stored_at
        again.write(row.frame, row.logged_at, before, step)
    again.conversation = folding.conversation()
    for name in FOLDED:
        if getattr(again, name) != getattr(world, name):
            raise world.broken(f"the tables are the fold of the stored frames, and not: {name}")
    return again


def check_forgotten(world: World) -> None:
    """Search all text of all tables for erased content, except cancellations."""
    conversation = world.conversation
    tables = repr(
        [
            [encode_frame(row.frame) for row in world.lives_kept.frames],
            conversation.rows,
            conversation.frame_ids,
            stored.dump(conversation.state),
            [world.runs, world.calls, world.claims, world.outcomes, world.words_written, world.cut_off],
            [effect for effect in world.outbox if not isinstance(effect, Cancel)],
        ]
    )
    for text in forgotten(world):
        if text in tables:
            raise world.broken(f"nothing of an erased life is in any table, but {text!r} is")


def forgotten(world: World) -> set[str]:
    """Returns the content of earlier lives, read from the log without folding it. A frame that names a run or a call of
    such a life adds nothing."""
    over, present = set(world.erased_ids), set[str]()
    erased_by: set[str | None] = set()
    for frame in world.log[: world.next_offset]:
        if isinstance(frame, LLMContextEraseFrame):
            if frame.id not in erased_by:
                over, present = over | present, set()
            erased_by.add(frame.id)
        elif ids_of(frame) & over:
            over |= texts_of(frame)
        else:
            present |= texts_of(frame)
    return over - present


def texts_of(frame: AnyFrame) -> set[str]:
    """Returns the unique content of a frame: words, and the ids of runs and calls."""
    return ids_of(frame) | set(WORD.findall(str(getattr(frame, "text", ""))))


def ids_of(frame: AnyFrame) -> set[str]:
    """Returns the ids of the runs and calls that a frame names."""
    named = {getattr(frame, name, None) for name in ("run_id", "tool_call_id")}
    calls = {call.tool_call_id for call in getattr(frame, "function_calls", ())}
    return calls | {str(one) for one in named if one}


def from_the_log(world: World) -> tuple[Conversation, tuple[Receipt, ...]]:
    """Returns the conversation and the receipts according to a fold of the whole log, without the tables."""
    folding, lives = Folding(Conversation.new(CONTEXT)), Lives()
    for frame, at in zip(world.log, world.logged, strict=True):
        if (step := folding.step(frame, at)) is not None:
            lives = lives.after(int(step.state.version), frame, at, 0.0)
    return folding.conversation(), lives.receipts
