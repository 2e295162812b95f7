"""The root of all errors of Frameledger, and beneath it what the caller must do. `services/errors.md` lists them all.

What is not one of these is a wrong call (TypeError, ValueError, RuntimeError of something closed) or a bug.
"""


class FrameledgerError(Exception):
    """The root: a failure that can happen to a correct program. The message is for people, and names what failed."""


class TransientError(FrameledgerError):
    """Something is away or too slow for a while.

    Remedy: Wait, and do the same again.
    """


class RefusedError(FrameledgerError):
    """The input is not taken, and the same input would be refused again.

    Remedy: Mend the input, or set it aside.
    """


class FencedError(FrameledgerError):
    """Another process owns the work or the partitions by now.

    Remedy: Stop, and drop what is in memory of them.
    """


class NotFoundError(FrameledgerError, LookupError):
    """What was asked for is not there.

    Remedy: Ask for something else, or make it first.
    """


class ConfigurationError(FrameledgerError):
    """The settings, the database's tables, the topics or the machine do not fit this release or each other.

    Remedy: Its operator changes them. Until then every further try fails the same way.
    """
