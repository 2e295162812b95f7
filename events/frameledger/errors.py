"""The root of all errors of Frameledger, and classes by what the caller must do. `services/errors.md` lists all errors.

Any other exception is an invalid call (TypeError, ValueError, or RuntimeError for something that is closed) or a bug.
"""


class FrameledgerError(Exception):
    """The root: a failure that can happen to a correct program. The message is for people, and names what failed."""


class TransientError(FrameledgerError):
    """Something is temporarily unavailable or too slow.

    Remedy: Wait, and do the same again.
    """


class RefusedError(FrameledgerError):
    """The input is refused, and would be refused again.

    Remedy: Correct the input, or set it aside.
    """


class FencedError(FrameledgerError):
    """Another process owns the work or the partitions by now.

    Remedy: Stop, and discard what is in memory about them.
    """


class NotFoundError(FrameledgerError, LookupError):
    """The requested object does not exist.

    Remedy: Request something that exists, or create it first.
    """


class ConfigurationError(FrameledgerError):
    """The settings, the database's tables, the topics or the machine do not fit this release or each other.

    Remedy: The operator has to change them. Until then every retry fails in the same way.
    """
