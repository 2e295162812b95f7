"""A frame with the name and the attributes of Pipecat's, for tests in an environment that has no Pipecat."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

_ids = count()


@dataclass
class LLMTextFrame:
    text: object
    append_to_context: bool = True
    skip_tts: bool | None = None
    includes_inter_frame_spaces: bool = True
    id: int = field(default_factory=_ids.__next__, compare=False)
    broadcast_sibling_id: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
