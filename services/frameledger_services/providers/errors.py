"""What can go wrong between us and a model, sorted by what the caller must do.

No message carries a secret: addresses and keys are left out where an error is made.
"""

from __future__ import annotations


class ProviderError(Exception):
    """The provider did not answer a request. `code` is for programs, the sentence for people; both may be published."""

    code = "provider_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class TransientError(ProviderError):
    """It may work again soon: overloaded, rate limited, out of order. Try again, not before `retry_after` seconds."""

    code = "provider_unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class ConnectionLostError(TransientError):
    """The stream broke off, or there was no connection at all."""

    code = "connection_lost"


class WebsocketReconnectedError(ConnectionLostError):
    """The connection was lost and made again. What the server knew of the inference is gone: begin it again."""

    code = "websocket_reconnected"


class RefusedContextError(ProviderError):
    """The provider refuses this very request (its 400). It would refuse it again."""

    code = "context_refused"


class RefusedError(ProviderError):
    """The provider refuses us (its 401, 403, 404): the key, the address or the model is wrong."""

    code = "provider_refused"


class CompletionTimeoutError(ProviderError):
    """Nothing came from the provider for as long as the service waits."""

    code = "completion_timeout"


class IncompleteCallError(ProviderError):
    """The model was cut short, as by a limit of tokens, in the middle of a function call. Nothing may be called."""

    code = "incomplete_call"


class UnmappableError(ProviderError):
    """The request holds what this provider has no form for, and the sentence names it. Nothing was sent."""

    code = "unmappable"

    def __init__(self, provider: str, what: str) -> None:
        """`what` is a clause that names the thing, such as `the setting top_k`."""
        super().__init__(f"The provider {provider!r} cannot be asked this: {what}.")
        self.provider = provider
        self.what = what
