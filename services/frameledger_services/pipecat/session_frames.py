"""Publishes the frames about one process: its fence, its pipeline, the application's notes and its end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.restore import NOTED
from frameledger_services.pipecat.values import to_json


class SessionFrames:
    """Adds the frames about one process to those of its pipeline."""

    def __init__(self, id_: UUID, capture: Capture) -> None:
        self._id = str(id_)
        self._capture = capture
        self._notes: dict[str, Any] = {}
        self._is_fenced = False

    def note_fenced(self, noted: dict[str, Any]) -> None:
        """Note that the log has the fence of this process, and the values noted before it."""
        self._is_fenced = True
        self._notes = noted | self._notes

    def begin(self, pipecat_version: str, processors: list[Any]) -> None:
        """Publish the fence, unless it is published, and a description of the pipeline."""
        capture = self._capture
        if not self._is_fenced:
            capture.add({"type": "LLMMirrorFrame", "mirror": self._id, "react": capture.is_answered_here})
            self._is_fenced = True
        about = {
            "session": self._id,
            "pipecat": pipecat_version,
            "processors": [str(one) for one in processors],
        }
        capture.add({"type": "StartFrame", "metadata": about})
        if self._notes:
            self._publish_notes()
        capture.sync()

    def note(self, settings: dict[str, Any]) -> None:
        self._notes |= settings
        # Published after the fence, because they would be ignored before it.
        if self._is_fenced:
            self._publish_notes()

    def end(self, kind: str, reason: str | None, lost: dict[str, int]) -> None:
        """Publish the end of the pipeline, by the type of Pipecat's last frame, and what was not recorded."""
        capture = self._capture
        about = {"reason": reason, "not_recorded": dict(capture.not_recorded), "lost": lost}
        details = {key: value for key, value in about.items() if value}
        end = "CancelFrame" if kind == "CancelFrame" else "EndFrame"
        capture.add({"type": end, "metadata": {"session": self._id, **details}})

    def _publish_notes(self) -> None:
        notes = {key: value for key, value in self._notes.items() if value is not None}
        self._capture.add({"type": "LLMUpdateSettingsFrame", "settings": {NOTED: to_json(notes)}})
