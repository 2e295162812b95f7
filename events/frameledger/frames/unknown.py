"""A frame that this release cannot read: of an unknown type, or of a newer version of a known type."""

from typing import Annotated, Any, final

from pydantic import Field, StringConstraints

from frameledger.frames.base import INT64_MAX, Frame


@final
class UnknownFrame(Frame):
    """Stored unchanged; changes nothing until a release that knows it folds the context again.

    Only `type`, `id` and `v` are checked. Everything else may have any shape and is kept.
    """

    said_by = None

    type: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
    """The name as given: 1 to 255 characters without NUL."""

    # Widened: this release cannot judge what a later one means by these fields.
    v: Annotated[int, Field(ge=1, le=INT64_MAX)] = 1
    """The version as given."""

    pts: Any = None
    """As given."""

    metadata: Any = Field(default_factory=dict)
    """As given."""

    produced_at: Any = None
    """As given."""

    id_fields = ("id",)

    mirror: Any = None
    """As given; text names a mirror."""
