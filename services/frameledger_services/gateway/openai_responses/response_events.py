"""The events of a streamed response.

They depend only on the frames of the answer, with one piece of text for each frame with text. So a client that reads a
response again receives the same events with the same numbers, and can continue after the last one that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from frameledger.frames import AnyFrame
from frameledger_services.gateway.openai.answer import SUPERSEDED, Answer
from frameledger_services.gateway.openai_responses.response import ResponseWriter, part

Event = dict[str, Any]

LAST = {"completed": "response.completed", "failed": "response.failed"}
"""The type of the last event by the status of the response; for other statuses `response.incomplete`."""


class PieceByPiece(Answer):
    """An answer whose text is available in the pieces of its frames."""

    __slots__ = ("_pieces",)

    def __init__(self, asked_version: int) -> None:
        Answer.__init__(self, asked_version)
        self._pieces: list[str] = []

    def take(self, frame: AnyFrame) -> None:
        """Read a frame."""
        Answer.take(self, frame)
        if piece := self.more():
            self._pieces.append(piece)

    def pieces(self) -> list[str]:
        """Returns the pieces since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces


class ResponseEvents:
    """Writes the events of one response, in order."""

    def __init__(self, writer: ResponseWriter, answer: Answer, starting_after: int = -1) -> None:
        """Events up to the number `starting_after` are left out. `answer` has to be a `PieceByPiece` unless only
        `whole` is called."""
        self._writer = writer
        self._answer = answer
        self._starting_after = starting_after
        self._number = -1
        self._pieces: list[str] = []

    def whole(self) -> bytes:
        """Returns the response itself."""
        return self._writer.whole()

    def begin(self) -> bytes:
        """Returns the first events."""
        response = self._writer.response("in_progress")
        return self._written(
            {"type": f"response.{name}", "response": response} for name in ("created", "in_progress")
        )

    def news(self) -> bytes:
        """Returns the events for the text since the last call."""
        pieces = self._answer.pieces() if isinstance(self._answer, PieceByPiece) else ()
        return b"".join(self._written(self._of_piece(piece)) for piece in pieces)

    def end(self) -> bytes:
        """Returns the last events of a finished answer."""
        response = self._writer.response()
        last = LAST.get(response["status"], "response.incomplete")
        return (
            self.news()
            + self._written(self._end_of_message())
            + self._written(self._of_calls())
            + self._written([{"type": last, "response": response}])
        )

    def broken(self, error: Mapping[str, Any]) -> bytes:
        """Returns the last events of a failed response, or of a stream that ends before its response does. A response
        whose sent text was superseded has not failed: a client that reads it again gets the valid text."""
        failure = self._answer.failure
        if failure is not None and failure.code != SUPERSEDED:
            return self.end()
        names = ("code", "message", "param")
        return self._written([{"type": "error", **{name: error["error"][name] for name in names}}])

    def _of_piece(self, piece: str) -> Iterator[Event]:
        if not self._pieces:
            yield self._of_item("added", 0, self._writer.message("", "in_progress"))
            yield self._of_part("content_part.added", part=part(""))
        self._pieces.append(piece)
        yield self._of_part("output_text.delta", delta=piece, logprobs=[])

    def _end_of_message(self) -> Iterator[Event]:
        if self._pieces:
            text = "".join(self._pieces)
            yield self._of_part("output_text.done", text=text, logprobs=[])
            yield self._of_part("content_part.done", part=part(text))
            yield self._of_item("done", 0, self._writer.message(text))

    def _of_calls(self) -> Iterator[Event]:
        for index, call in enumerate(self._writer.calls(), 1 if self._pieces else 0):
            about = {"item_id": call["id"], "output_index": index}
            arguments = "response.function_call_arguments"
            yield self._of_item("added", index, {**call, "arguments": "", "status": "in_progress"})
            yield {"type": f"{arguments}.delta", **about, "delta": call["arguments"]}
            yield {"type": f"{arguments}.done", **about, "name": call["name"], "arguments": call["arguments"]}
            yield self._of_item("done", index, call)

    def _of_item(self, what: str, index: int, item: Mapping[str, Any]) -> Event:
        return {"type": f"response.output_item.{what}", "output_index": index, "item": item}

    def _of_part(self, what: str, **more: Any) -> Event:
        place = {"item_id": self._writer.message_id, "output_index": 0, "content_index": 0}
        return {"type": f"response.{what}", **place, **more}

    def _written(self, events: Any) -> bytes:
        written = b""
        for event in events:
            self._number += 1
            if self._number > self._starting_after:
                data = json.dumps(
                    {**event, "sequence_number": self._number}, separators=(",", ":"), default=list
                )
                written += b"event: %s\ndata: %s\n\n" % (event["type"].encode(), data.encode())
        return written
