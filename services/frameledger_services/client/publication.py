"""What all clients do around publishing: they complete and check the frames and warn before anything is sent, and keep
those that may not have arrived."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from uuid import UUID

from frameledger.frames import AnyFrame
from frameledger.headers import TRACEPARENT
from frameledger.ids import ContextId
from frameledger.record import MAX_KEY_BYTES, Outgoing, outgoing
from frameledger.values import replace, value
from frameledger_services.client.errors import ContextChangedError
from frameledger_services.client.frame_inputs import FrameInput, FramePreparation, PreparedFrame, expecting
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.spelling import warn_of_misspelled
from frameledger_services.event_log.frame_defaults import note_published, was_published


class RepeatedWarning(UserWarning):
    """A frame object that had already been published successfully was published again; it still counts once."""


@value
class Publication:
    """Frames of one conversation that are to be published, in order."""

    context_id: str
    prepared: Sequence[PreparedFrame]
    records: Sequence[Outgoing]
    """The record of each."""

    expected_version: int | None

    def records_of(self, traceparent: str | None) -> list[Outgoing]:
        """Returns the records, within a trace if there is one. Raises ValueError for text that cannot be encoded as
        UTF-8."""
        if traceparent is None:
            return list(self.records)
        header = TRACEPARENT, traceparent.encode()
        return [replace(one, headers=(*one.headers, header)) for one in self.records]

    @property
    def frames(self) -> list[AnyFrame]:
        """The frames, complete with their ids and times."""
        return [one.complete for one in self.prepared]

    def check_expected(self, published: Sequence[PublishedFrame]) -> None:
        """Raise `ContextChangedError` if the context was not at the version that the frame expected."""
        if self.expected_version is not None and published[0].reason == "context_changed":
            raise ContextChangedError(self.context_id, self.expected_version, published[0])


class Publications:
    """The publications of one client."""

    def __init__(self, *, warns_of_misspelled: bool = True) -> None:
        self._preparation = FramePreparation()
        self._warns_of_misspelled = warns_of_misspelled

    def prepare(
        self,
        context_id: str,
        frames: Sequence[FrameInput],
        *,
        source: str,
        expected_version: int | None,
        causation_id: UUID | str | None,
    ) -> Publication:
        """Returns the publication of these frames. Warns about probable mistakes in them.

        Raises TypeError and ValueError as documented for `Client.publish`.
        """
        prepared = self._preparation.prepare(checked_context_id(context_id), frames)
        if expected_version is not None:
            prepared = expecting(prepared, expected_version)
            if was_published(prepared[0].frame, context_id):
                raise ValueError(
                    f"{prepared[0].complete.name} was published to {context_id} before, and its outcome stays: to "
                    "expect another version, create a new frame."
                )
        records = [
            outgoing(
                one.complete,
                ContextId(context_id),
                source=source,
                causation_id=causation_id,
                encoded=one.encoded,
            )
            for one in prepared
        ]
        if self._warns_of_misspelled:
            warn_of_misspelled(one.frame for one in prepared)
        for frame in prepared:
            if was_published(frame.frame, context_id):
                warnings.warn(
                    f"{frame.complete.name} was published to {context_id} before and counts once: to say the "
                    "same again, create a new frame, for instance with frame.model_copy().",
                    RepeatedWarning,
                    stacklevel=3,
                )
        return Publication(context_id, prepared, records, expected_version)

    def sending(self, publication: Publication) -> _Sending:
        """Context manager around sending it, which records whether it was published."""
        return _Sending(self._preparation, publication)


class _Sending:
    def __init__(self, preparation: FramePreparation, publication: Publication) -> None:
        self._preparation = preparation
        self._publication = publication

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        sent = self._publication
        if error is not None:
            # Also if it is cancelled: the caller may publish again.
            sizes = [len(one.value) for one in sent.records]
            self._preparation.note_unconfirmed(sent.context_id, sent.prepared, sizes)
            return
        self._preparation.note_published(sent.context_id, sent.prepared)
        for frame in sent.prepared:
            note_published(frame.frame, sent.context_id)


def checked_context_id(context_id: object) -> str:
    """Returns the id of a conversation to publish to. Raises TypeError and ValueError for an invalid id."""
    if not isinstance(context_id, str):
        raise TypeError(f"A context id is text, but publish() got {context_id!r}. The frames follow the id.")
    if "\x00" in context_id or not 1 <= len(context_id.encode(errors="replace")) <= MAX_KEY_BYTES:
        raise ValueError(
            f"A context id has 1 to {MAX_KEY_BYTES} bytes and no NUL, but publish() got {context_id!r}."
        )
    return context_id
