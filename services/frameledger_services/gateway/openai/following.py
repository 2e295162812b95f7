"""Follows the answer to a question, across attempts, calls and runs, until it is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from frameledger.frames import InterruptionFrame
from frameledger.record import decode
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.live.hub import UNNOTIFIED_WAKE_SECONDS
from frameledger_services.gateway.openai.answer import STARTS, TYPES, Answer
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import SOURCE
from frameledger_services.store import client_calls, client_requests, conversation_state
from frameledger_services.store.answered_requests import first_beyond
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.connections import DatabaseUnavailableError

FIRST_SECONDS = 5.0
"""How long `Following.begin` waits for the first words of a run that has begun. Until it returns, an error can still
become the status of the response."""

OVER = ("quiet", "ended", "recording")
"""Statuses of a conversation in which nothing is in progress."""


class Following:
    """Follows one answer, until it is closed."""

    def __init__(
        self,
        dependencies: Dependencies,
        question: AskedQuestion,
        answer: Answer | None = None,
        *,
        until: int | None = None,
    ) -> None:
        """`answer` receives the frames, by default a plain `Answer`. Frames from the version `until` on are not part of
        it, because the next question was asked there; None if that is not known. Raises `TooManyFollowersError`."""
        self.question = question
        self.answer = Answer(question.version) if answer is None else answer
        self.version = question.version
        """The version up to which frames were read."""

        self.began_at: datetime | None = None
        self.is_over = False
        """Whether the answer is finished."""

        self.calls: list[ClientCall] = []
        """Calls of the client's own functions, which it has to answer before the model continues. Known once `is_over`
        is true."""

        self.has_all = False
        """Whether all frames of the conversation were read."""

        self._dependencies = dependencies
        self._since = question.version if question.since is None else question.since
        self._until = until
        self._status: str | None = None
        self._query_failed = False
        """Whether the last query for work in progress failed."""

        self._follower = dependencies.hub.follow(question.context_id, question.version, TYPES)

    def close(self) -> None:
        """Stop following. A pending `next` returns False."""
        self._follower.close()

    @property
    def is_closed(self) -> bool:
        return self._follower.is_closed

    async def begin(self) -> None:
        """Wait until the answer has words, a call or an end, or until `FIRST_SECONDS` after it began. Raises
        `no-answer` or `conversation-busy` if no model begins within the setting `gateway_openai_begin_secs`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._dependencies.settings.gateway_openai_begin_secs
        while not self._has_something:
            if (left := end - loop.time()) <= 0:
                break
            had_begun = self.answer.has_begun
            await self.next(left)
            if self.is_closed:
                return
            if self.answer.has_begun and not had_begun:
                end = loop.time() + FIRST_SECONDS
        if not (self.answer.has_begun or self.calls) and self.answer.failure is None:
            raise await self._no_answer()

    async def _no_answer(self) -> ProblemError:
        """Returns the problem that says why no model has begun."""
        if self._has_something and self.question.since is not None:
            others = await self._dependencies.database.read(
                client_calls.others_waiting_since, self.question.context_id, self.question.since
            )
            if others:
                whom = ", ".join(f"{one.function_name} for {one.waiting_for or 'somebody'}" for one in others)
                # A retry soon does not help: a person takes time.
                return ProblemError(
                    "conversation-busy",
                    f"The results are stored. The model continues when all calls have results; still waiting: {whom}.",
                    headers={"X-Should-Retry": "false"},
                )
        if self._has_something:
            return ProblemError("no-answer", "The run was cancelled before a model began to answer.")
        seconds = self._dependencies.settings.gateway_openai_begin_secs
        return ProblemError(
            "no-answer",
            f"No model began to answer within {seconds:g} s: no inference service is alive, all are busy, or none "
            "serves this model (`frameledger status`).",
        )

    async def next(self, within: float) -> bool:
        """Wait for more frames of the conversation. Returns whether there were any; `is_over` says whether they were
        the last."""
        chunk = await self._follower.next(
            min(within, UNNOTIFIED_WAKE_SECONDS) if self._query_failed else within
        )
        if chunk is None:
            is_at_end = self._is_behind(self.version) or (self.has_all and self._status == "calling")
            if is_at_end and not self.is_over:
                self.is_over = await self._is_free()
            return False
        if self._until is None and self._has_other_runs(chunk):
            self._until = await self._first_beyond()
        self._take(chunk)
        if self._is_behind(chunk.version):
            self.is_over = await self._is_free()
        elif self.answer.failure is not None or self.answer.was_interrupted or self._is_gone(chunk):
            self.is_over = True
        elif chunk.is_all and not self.answer.is_open:
            # While a call is open, the status is `calling`.
            self.is_over = self._status in OVER or (self._status == "calling" and await self._is_free())
        return True

    async def interrupt(self, is_left: Callable[[], bool] = lambda: True) -> bool:
        """Publish an interruption if the answer is in progress, no other question followed, and `is_left`. Returns
        whether it was published.

        A question that is stored between this check and the interruption is interrupted too: an interruption stops
        whatever is in progress. If the process dies between them, the answer continues without a client.
        """
        context_id, read = self.question.context_id, self._dependencies.database.read
        goes_on, _ = await read(conversation_state.goes_on, context_id)
        if not goes_on or not self.question.is_own:
            return False
        if await read(client_requests.has_another_asked, context_id, self.question.version) or not is_left():
            return False
        await self._dependencies.client.publish(
            self.question.context_id,
            InterruptionFrame(),
            source=SOURCE,
            within=self._dependencies.settings.gateway_request_secs,
        )
        return True

    @property
    def _has_something(self) -> bool:
        return self.is_over or self.answer.has_something

    def _take(self, chunk: Chunk) -> None:
        for frame in chunk.frames:
            if self._is_behind(frame.version) or self._is_finished():
                break
            if frame.payload is not None and frame.outcome == "applied":
                self.answer.take(decode(frame.payload))
                if self.answer.has_begun and self.began_at is None:
                    self.began_at = frame.logged_at
        self.version = chunk.version
        self.has_all = chunk.is_all
        self._status = None if chunk.head is None else chunk.head.status

    def _has_other_runs(self, chunk: Chunk) -> bool:
        """Whether a second run follows, which continues the answer or answers another question. A run that failed
        before it began is recognised by its error."""
        run_ids = [
            one.run_id
            for one in chunk.frames
            if one.outcome == "applied" and (one.type in STARTS or (one.type == "ErrorFrame" and one.run_id))
        ]
        return len({*run_ids, self.answer.current_run_id} if self.answer.has_begun else {*run_ids}) > 1

    async def _first_beyond(self) -> int | None:
        """Returns the version at which the next question was asked, or None if there is none. Also None while the
        database does not respond: a client that streams the answer has received its end before anybody can ask
        again."""
        try:
            return await self._dependencies.database.read(
                first_beyond, self.question.context_id, self.question.version
            )
        except DatabaseUnavailableError:
            return None

    def _is_behind(self, version: int) -> bool:
        """Whether the next question was asked at or before this version."""
        return self._until is not None and version >= self._until

    def _is_finished(self) -> bool:
        """Whether the answer failed or was interrupted: later frames are not part of it."""
        return self.answer.failure is not None or self.answer.was_interrupted

    def _is_gone(self, chunk: Chunk) -> bool:
        if (lost := chunk.lost) is not None:
            self.answer.fail(*lost)
        return lost is not None

    async def _is_free(self) -> bool:
        """Returns whether nothing is in progress that the answer waits for. It waits for a background call only if
        there is no text yet, because then the call's report will be the answer. False while the database does not
        respond, so that `next` queries again and the answer continues."""
        try:
            is_free = await self._read_is_free()
        except DatabaseUnavailableError:
            self._query_failed = True
            return False
        self._query_failed = False
        return is_free

    async def _read_is_free(self) -> bool:
        if self._is_behind(self.version):
            # Work in progress belongs to the next question.
            self.calls = await self._calls()
            return True
        database, context_id = self._dependencies.database, self.question.context_id
        # Before the version is read, so a change in between has a later version.
        calls = await self._calls()
        waits = not (calls or self.answer.text) and await database.read(
            conversation_state.has_running_calls, context_id
        )
        goes_on, version = await database.read(conversation_state.goes_on, context_id)
        if waits or goes_on or version != self.version:
            return False
        self.calls = calls
        return True

    async def _calls(self) -> list[ClientCall]:
        read = client_calls.left_since if self._until is None else client_calls.left_at
        upto = () if self._until is None else (self._until,)
        return await self._dependencies.database.read(read, self.question.context_id, self._since, *upto)
