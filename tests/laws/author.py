"""Generates conversations in which the next frame depends on what is open.

The author folds each frame that it writes, so that its frames name runs, attempts and calls that are open, or were
until recently. Each piece of text contains a unique word (`WORD`), by which a property recognizes it in a context.
"""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.laws.arbitrary import (
    BROUGHT,
    CALL_IDS,
    CLIENT_TOOL,
    FIELD_VALUES,
    HIGH_HALF,
    LOW_HALF,
    OTHER_TOOL,
    RESULTS,
    TOOL,
    arbitrary,
    as_from_a_record,
)

from frameledger.evolve import State, limits
from frameledger.evolve.state import Call
from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    AnyFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    CancelFrame,
    ContextSnapshot,
    EndFrame,
    ErrorFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMContextEraseFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    LLMSetToolsFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    LLMUpdateSettingsFrame,
    TextFrame,
    TranscriptionFrame,
    UnknownFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    Waiting,
)

WORD = re.compile(r"w\d+\.")


class Author:
    """Writes one conversation. `frames` is what was written so far, and `folding` its fold."""

    def __init__(self, context_id: str, *, erases: bool = False) -> None:
        """With `erases` it sometimes erases the conversation, and may continue runs and calls from before the
        erasure."""
        self._erases = erases
        self.folding = Folding(Conversation.new(context_id))
        self.frames: list[AnyFrame] = []
        self._words = 0
        self._past_runs: list[tuple[str, int]] = []

    @property
    def state(self) -> State:
        return self.folding.state

    def write(self, move: int) -> None:
        """Write the next frame. The number decides which, together with what is open; 0 writes none, so that
        hypothesis shortens a conversation by leaving frames out."""
        if move:
            rng = Random(move)
            ways = self._ways()
            way = rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0]
            self.add(self._named(way(rng), rng))

    def add(self, frame: Frame) -> None:
        decoded = as_from_a_record(frame)
        run = self.state.runs.open
        if run is not None and (run.run_id, run.attempt) not in self._past_runs[-1:]:
            self._past_runs.append((run.run_id, run.attempt))
        self.frames.append(decoded)
        self.folding.step(decoded)

    def _named(self, frame: Frame, rng: Random) -> Frame:
        """Half of the frames have an id, sometimes that of an earlier frame. Some name a keeper of the history."""
        dice = rng.random()
        if self._erases and frame.mirror is None and rng.random() < 0.1:
            frame = frame.model_copy(update={"mirror": self._keeper(rng)})
        if dice < 0.5:
            return frame.model_copy(update={"id": f"f{len(self.frames)}"})
        if dice < 0.52:
            return frame.model_copy(update={"id": f"f{rng.randrange(len(self.frames) + 1)}"})
        return frame

    def _ways(self) -> list[tuple[float, Callable[[Random], Frame]]]:
        return [
            *self._of_the_user(),
            *self._of_the_assistant(),
            *(way for call in self.state.calls.open.values() for way in self._of_a_call(call)),
            *self._of_the_context(),
        ]

    # What the user does

    def _of_the_user(self) -> Iterator[tuple[float, Callable[[Random], Frame]]]:
        turn = self.state.turn
        started, stopped = (4.0, 0.4) if turn is None else (0.4, 4.0) if turn.speaking else (1.0, 3.0)
        yield started, lambda rng: UserStartedSpeakingFrame(second_input=self._second_input(rng))
        yield stopped, self._stop
        yield (1.0 if turn is None else 4.0), self._transcription
        yield (
            (0.3 if turn is None else 2.0),
            lambda rng: InterimTranscriptionFrame(text=rng.choice(("so", " "))),
        )
        yield (1.0 if self.state.speech.response else 0.4), self._interruption
        bot_speaks = self.state.speech.bot_since is not None
        yield (0.2 if bot_speaks else 1.0), lambda rng: BotStartedSpeakingFrame()
        yield (
            (1.5 if bot_speaks else 0.2),
            lambda rng: BotStoppedSpeakingFrame(
                opened_version=rng.choice((None, None, self.state.speech.bot_since, 1))
            ),
        )

    def _stop(self, rng: Random) -> Frame:
        opened = None if self.state.turn is None else self.state.turn.opened_version
        return UserStoppedSpeakingFrame(opened_version=rng.choice((None, None, opened, opened, opened or 1)))

    def _transcription(self, rng: Random) -> Frame:
        return TranscriptionFrame(text=self._piece(rng), includes_inter_frame_spaces=rng.random() < 0.2)

    def _interruption(self, rng: Random) -> Frame:
        heard = rng.choice((None, None, "", "heard this", " heard that "))
        return InterruptionFrame(heard_text=heard, mirror=self._keeper(rng))

    # What the assistant says

    def _of_the_assistant(self) -> Iterator[tuple[float, Callable[[Random], Frame]]]:
        run, response = self.state.runs.open, self.state.speech.response
        yield 0.7, self._late
        if run is None and response is None:
            yield 2.0, lambda rng: LLMRunFrame()
            yield 0.7, lambda rng: LLMFullResponseStartFrame()
            yield 0.4, self._text
        elif response is None:
            yield 6.0, self._attempt
            yield 1.5, lambda rng: LLMFullResponseStartFrame()
            yield 0.5, self._error
        else:
            yield 6.0, self._text
            yield 4.0, self._announcement
            yield 4.0, self._end
            yield 2.0, lambda rng: self._said(LLMAssistantPushAggregationFrame, rng)
            yield 1.0, self._error
            yield (0.3 if response.fenced else 2.0), lambda rng: LLMFullResponseStartFrame()
            if run is not None:
                yield (5.0 if run.positions else 2.0), self._attempt
            yield 0.5, lambda rng: LLMTextFrame(text=self._piece(rng))
            yield 0.5, lambda rng: LLMRunFrame()
        yield (
            (1.2 if response else 0.3),
            lambda rng: self._said(
                LLMThoughtStartFrame, rng, append_to_context=rng.random() < 0.8, llm="anthropic"
            ),
        )
        if self.state.speech.thought is not None:
            yield 3.0, lambda rng: self._said(LLMThoughtTextFrame, rng, text=self._piece(rng))
            yield 3.0, lambda rng: self._said(LLMThoughtEndFrame, rng, signature=rng.choice((None, "sig")))

    def _said(self, frame_type: Callable[..., Frame], rng: Random, **fields: Any) -> Frame:
        """Returns a frame of the open response, with run and attempt if the response has them."""
        response, run = self.state.speech.response, self.state.runs.open
        if response is None or not response.fenced or run is None:
            return frame_type(**fields)
        attempt = None if run.attempt == 1 and rng.random() < 0.5 else run.attempt
        return frame_type(**fields, run_id=run.run_id, attempt=attempt)

    def _attempt(self, rng: Random) -> Frame:
        run = self.state.runs.open
        assert run is not None
        attempt = rng.choice((None, 1)) if run.attempt == 0 else run.attempt + rng.choice((0, 1, 1, 1, 2))
        return LLMFullResponseStartFrame(run_id=run.run_id, attempt=attempt, model="m1")

    def _text(self, rng: Random) -> Frame:
        frame_type = rng.choice((LLMTextFrame, LLMTextFrame, LLMTextFrame, TextFrame))
        text = rng.choice((self._piece(rng), self._piece(rng), HIGH_HALF, LOW_HALF, " ", ""))
        return self._said(frame_type, rng, text=text, append_to_context=rng.random() < 0.9)

    def _announcement(self, rng: Random) -> Frame:
        ids = [rng.choice(CALL_IDS) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
        return self._said(
            FunctionCallsStartedFrame,
            rng,
            function_calls=[
                FunctionCallFromLLM(function_name="weather", tool_call_id=one, arguments={"n": n})
                for n, one in enumerate(ids)
            ],
            group_id=rng.choice((None, None, None, "g1", "g2")),
            run_in_parallel=rng.random() < 0.6,
            group_parallel_tools=rng.random() < 0.8,
        )

    def _end(self, rng: Random) -> Frame:
        reason = rng.choice((None, "stop", "stop", "tool_calls", "error"))
        return self._said(LLMFullResponseEndFrame, rng, finish_reason=reason)

    def _error(self, rng: Random) -> Frame:
        run = self.state.runs.open
        if run is None or rng.random() < 0.3:
            return ErrorFrame(fatal=rng.random() < 0.7)
        attempt = rng.choice((None, run.attempt or None, run.attempt + 1))
        return ErrorFrame(fatal=rng.random() < 0.6, run_id=run.run_id, attempt=attempt)

    def _late(self, rng: Random) -> Frame:
        """Returns a frame of a run, or an attempt, that is over."""
        run_id, attempt = rng.choice(self._past_runs or [("nobody", 0)])
        run = self.state.runs.open
        if run is not None and run.attempt > 1 and rng.random() < 0.7:
            run_id, attempt = run.run_id, run.attempt - 1
        of_it = {"run_id": run_id, "attempt": attempt or None}
        return rng.choice(
            (
                LLMTextFrame(text=self._piece(rng), **of_it),
                LLMFullResponseStartFrame(**of_it),
                LLMFullResponseEndFrame(**of_it),
                LLMThoughtStartFrame(append_to_context=True, llm="anthropic", **of_it),
                ErrorFrame(fatal=True, **of_it),
                FunctionCallsStartedFrame(
                    function_calls=[
                        FunctionCallFromLLM(
                            function_name="clock", tool_call_id=rng.choice(CALL_IDS), arguments="{}"
                        )
                    ],
                    **of_it,
                ),
            )
        )

    # Results and other frames of calls

    def _of_a_call(self, call: Call) -> Iterator[tuple[float, Callable[[Random], Frame]]]:
        running = call.running
        if running is None:
            eager = {"announced": 1.0, "queued": 0.4, "dispatched": 4.0}[call.stage]
            yield eager, lambda rng: self._start(call, rng)
            yield 0.4, lambda rng: self._cancel(call, rng)
            yield 0.1, lambda rng: self._result(call, rng)
            return
        yield 2.5, lambda rng: self._result(call, rng)
        yield 0.5, lambda rng: self._cancel(call, rng)
        yield 0.4, lambda rng: self._start(call, rng)
        yield (
            0.4,
            lambda rng: self._start(
                call,
                rng,
                worker=running.worker,
                call_attempt=running.call_attempt,
                waiting=Waiting(for_="approval"),
            ),
        )
        if running.safe_to_retry:
            yield (
                0.7,
                lambda rng: self._start(
                    call,
                    rng,
                    worker="worker-2",
                    call_attempt=(running.call_attempt or 1) + rng.choice((0, 1, 1)),
                ),
            )

    def _start(self, call: Call, rng: Random, **fields: Any) -> Frame:
        by_a_worker = rng.random() < (0.85 if call.stage == "dispatched" else 0.15)
        terms: dict[str, Any] = {
            "cancel_on_interruption": rng.random() < 0.6,
            "group_id": rng.choice((None, None, None, "g1", "g2")),
            "safe_to_retry": rng.random() < 0.4,
            "call_attempt": 1 if by_a_worker else None,
            "worker": "worker-1" if by_a_worker else None,
            "opened_version": rng.choice((None, None, None, call.requested_version, 1)),
        }
        return FunctionCallInProgressFrame(
            function_name=call.function_name, tool_call_id=call.tool_call_id, arguments={}, **(terms | fields)
        )

    def _result(self, call: Call, rng: Random) -> Frame:
        intermediate = rng.random() < 0.3
        word = rng.choice((None, None, None, None, True, False))
        return FunctionCallResultFrame(
            function_name=call.function_name,
            tool_call_id=call.tool_call_id,
            result=rng.choice(RESULTS),
            run_llm=rng.choice((None, None, None, True, False)),
            properties=FunctionCallResultProperties(is_final=False, run_llm=word) if intermediate else None,
            call_attempt=self._call_attempt(call, rng),
            settled_as=rng.choice((None, None, "done", "failed", "ambiguous", "ambiguous")),
            opened_version=rng.choice((None, None, None, None, call.requested_version, 1)),
        )

    def _cancel(self, call: Call, rng: Random) -> Frame:
        return FunctionCallCancelFrame(
            function_name=call.function_name,
            tool_call_id=call.tool_call_id,
            run_llm=rng.random() < 0.5,
            call_attempt=self._call_attempt(call, rng),
            opened_version=rng.choice((None, None, call.requested_version, 1)),
        )

    def _call_attempt(self, call: Call, rng: Random) -> int | None:
        latest = None if call.running is None else call.running.call_attempt
        return None if latest is None else rng.choice((None, latest, latest, latest, max(1, latest - 1)))

    # Changes of the context by clients, and unexpected frames

    def _of_the_context(self) -> Iterator[tuple[float, Callable[[Random], Frame]]]:
        terms = self.state.terms
        if self._erases:
            yield 0.8, lambda rng: LLMContextEraseFrame(why="asked")
        yield (
            1.0,
            lambda rng: LLMMessagesAppendFrame(
                messages=self._brought(rng),
                run_llm=rng.random() < 0.6,
                expected_version=self._expected(rng),
                second_input=self._second_input(rng),
                mirror=self._keeper(rng),
            ),
        )
        yield (
            0.3,
            lambda rng: LLMMessagesUpdateFrame(
                messages=self._brought(rng), run_llm=rng.random() < 0.5, expected_version=self._expected(rng)
            ),
        )
        yield (1.0 if terms.mirror else 0.4), self._rewrite
        yield (0.5 if terms.mirror else 0.15), self._mirror
        yield (0.7 if terms.recording else 0.2), self._whole_context
        yield (0.7 if terms.ended else 0.15), self._ending
        some = ((), (TOOL,), (OTHER_TOOL, TOOL), None, (CLIENT_TOOL,), (CLIENT_TOOL, OTHER_TOOL))
        yield 0.6, lambda rng: LLMSetToolsFrame(tools=rng.choice(some))
        yield 0.4, lambda rng: LLMUpdateSettingsFrame(settings=rng.choice(FIELD_VALUES["settings"]))
        yield 0.4, lambda rng: LLMSetLimitsFrame(**self._limits(rng))
        yield 0.7, self._unannounced
        yield 0.4, self._of_a_past_call
        if self.state.calls.ambiguous:
            yield 1.0, self._resolution
        yield 0.2, lambda rng: UnknownFrame(type=rng.choice(("NoSuchFrame", "LLMRunFrame")), v=2)
        yield 1.0, arbitrary

    def _second_input(self, rng: Random) -> Any:
        return rng.choice((None, None, None, *FIELD_VALUES["second_input"]))

    def _limits(self, rng: Random) -> dict[str, Any]:
        return {name: rng.choice(FIELD_VALUES[name]) for name in limits.NAMES}

    def _expected(self, rng: Random) -> int | None:
        """Returns an expected version: none, the newest, one that still holds, or one that may not."""
        state = self.state
        return rng.choice(
            (None, None, state.version, state.changed_version, rng.randrange(state.version + 2))
        )

    def _keeper(self, rng: Random) -> str | None:
        """Returns the keeper of the history, a former one, or another."""
        return rng.choice((None, self.state.terms.mirror, self.state.terms.mirror, "m1"))

    def _rewrite(self, rng: Random) -> Frame:
        """Returns a rewrite of a message, usually near the end, and sometimes of none that exists."""
        newest = self.state.place.next_position
        position = max(1, newest - rng.choice((0, 1, 1, 2, 2, 3, 4, 9)))
        message = None if rng.random() < 0.4 else rng.choice(BROUGHT)
        return LLMMessageRewriteFrame(position=position, message=message, mirror=self._keeper(rng))

    def _mirror(self, rng: Random) -> Frame:
        name = rng.choice(("m1", "m2", None, None if self.state.terms.mirror else "m3"))
        return LLMMirrorFrame(mirror=name, react=rng.random() < 0.7)

    def _ending(self, rng: Random) -> Frame:
        return rng.choice((EndFrame, CancelFrame))(mirror=self._keeper(rng))

    def _brought(self, rng: Random) -> list[dict[str, Any]]:
        return [rng.choice(BROUGHT) for _ in range(rng.choice((0, 1, 1, 2)))]

    def _whole_context(self, rng: Random) -> Frame:
        tools = [rng.choice((TOOL, CLIENT_TOOL))]
        snapshot = ContextSnapshot(messages=self._brought(rng), tools=tools, settings={"seed": 1})
        return LLMContextFrame(context=snapshot, run_llm=rng.random() < 0.5, react=rng.random() < 0.65)

    def _unannounced(self, rng: Random) -> Frame:
        return FunctionCallInProgressFrame(
            function_name="clock",
            tool_call_id=rng.choice(CALL_IDS),
            arguments='{"zone": "CET"}',
            cancel_on_interruption=rng.random() < 0.6,
            group_id=rng.choice((None, "g1", "g2")),
            call_attempt=rng.choice((None, None, None, 1)),
            safe_to_retry=rng.random() < 0.3,
            waiting=rng.choice((None, None, None, Waiting(for_="approval"))),
        )

    def _of_a_past_call(self, rng: Random) -> Frame:
        """Returns a result, a cancel or a start of a call that is over, if there is one."""
        past = rng.choice((*self.state.calls.settled, *self.state.calls.barred, "c1"))
        named = {"function_name": "weather", "tool_call_id": past}
        return rng.choice(
            (
                FunctionCallResultFrame(result="late", **named),
                FunctionCallCancelFrame(run_llm=True, **named),
                FunctionCallInProgressFrame(arguments={}, call_attempt=rng.choice((None, 1)), **named),
                FunctionCallInProgressFrame(arguments={}, opened_version=self.state.version or 1, **named),
            )
        )

    def _resolution(self, rng: Random) -> Frame:
        """Returns a person's resolution of an ambiguous call."""
        one = rng.choice(self.state.calls.ambiguous)
        return FunctionCallResultFrame(
            function_name="weather",
            tool_call_id=one.tool_call_id,
            result=rng.choice(RESULTS),
            run_llm=rng.choice((None, None, True, False)),
            settled_as="resolved",
            opened_version=rng.choice((None, None, one.requested_version, 1)),
        )

    def _piece(self, rng: Random) -> str:
        """Returns a piece of text with a unique word."""
        self._words += 1
        return rng.choice(("{}", " {}", "{} ", "{}" + HIGH_HALF, LOW_HALF + "{}")).format(f"w{self._words}.")
