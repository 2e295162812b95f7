"""Ids derived from positions on the log, so that folding or publishing the same thing twice gives the same id.

The namespaces are constants of the product: with others, a rebuild would produce other ids.
"""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

from frameledger.ids import ContextId, RunId, ToolCallId, Version

RUNS = UUID("6d0f4a0e-2f0c-5d1b-9a43-5b2c7f1e8a10")
EFFECTS = UUID("b7c1d9e4-8a35-5f6e-8c02-1d94e0a7c356")
KEYS = UUID("0b9a2f4d-51c6-5e8a-8f13-9e7d4c60a1b5")
COPIES = UUID("2f8c6f0b-95d3-5c1e-b7a4-60c2d9e1f538")

_RUNS, _EFFECTS, _KEYS, _COPIES = RUNS.bytes, EFFECTS.bytes, KEYS.bytes, COPIES.bytes

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit of an id that names its variant, by the digit of the hash in that place: only its last two bits count."""


def run_id(context_id: ContextId, asked_version: Version) -> RunId:
    """Returns the id of the run that the frame at this version of the context was the first to request."""
    return RunId(_uuid5(_RUNS, f"{asked_version}:{context_id}"))


def effect_id(kind: str, context_id: ContextId, version: Version, subject: str) -> str:
    """Returns the id of the effect of this kind that the frame at this version has on `subject`, a run or a call."""
    return _uuid5(_EFFECTS, f"{kind}:{version}:{len(subject)}:{subject}:{context_id}")


def idempotency_key(
    context_id: ContextId, requested_version: Version, ordinal: int, tool_call_id: ToolCallId
) -> str:
    """Returns the key with which a call's handler can make an external request idempotent: the same for every attempt
    of the call, and different for every other call."""
    return _uuid5(_KEYS, f"{requested_version}:{ordinal}:{tool_call_id}:{context_id}")


def copy_id(kind: str, context_id: str, subject: str, copy: str) -> str:
    """Returns the id of a frame in the conversation `copy` that a fork or a replay (`kind`) made from `subject`, a
    version or a frame of a context. Making the copy again results in the same id."""
    return _uuid5(_COPIES, f"{kind}:{subject}:{len(context_id)}:{context_id}:{copy}")


def _uuid5(namespace: bytes, name: str) -> str:
    """Returns `str(uuid.uuid5(namespace, name))`, at a third of its cost: a run's id is computed many times."""
    digest = sha1(namespace + name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    variant = _VARIANT[digest[16]]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
