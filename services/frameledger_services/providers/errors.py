"""What can go wrong between us and a model, sorted by what the caller must do.

No message carries a secret: addresses and keys are left out where an error is made.
"""

from __future__ import annotations

from frameledger import errors


class ProviderError(errors.FrameledgerError):
    """The provider did not answer a request. `code` is for programs, the message for people; both may be published.

    Remedy: The classes derived from it say what to do.
    """

    code = "provider_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class ProviderUnavailableError(ProviderError, errors.TransientError):
    """The provider may answer again soon: it is overloaded, limits the rate, or is out of order.

    Remedy: Try again, not before `retry_after` seconds.
    """

    code = "provider_unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class ConnectionLostError(ProviderUnavailableError):
    """The stream of a provider broke off, or there was no connection at all.

    Remedy: Try again; if it never connects, check the provider's address.
    """

    code = "connection_lost"


class WebsocketReconnectedError(ConnectionLostError):
    """The connection to a provider was lost and made again. What the server knew of the inference is gone.

    Remedy: Begin the inference again.
    """

    code = "websocket_reconnected"


class RefusedContextError(ProviderError, errors.RefusedError):
    """The provider refuses this very request (its 400), and would refuse it again.

    Remedy: Change the context or its settings as the message says.
    """

    code = "context_refused"


class ProviderRefusedError(ProviderError, errors.ConfigurationError):
    """The provider refuses us (its 401, 402, 403, 404): the key, the account, the address or the model is wrong.

    Remedy: Set the right key, address or model.
    """

    code = "provider_refused"


class CompletionTimeoutError(ProviderError, errors.TransientError):
    """Nothing came from the provider for as long as the service waits.

    Remedy: Try again, or raise `FRAMELEDGER_INFERENCE_COMPLETION_TIMEOUT_SECS`.
    """

    code = "completion_timeout"


class IncompleteCallError(ProviderError, errors.RefusedError):
    """The model was cut short, as by a limit of tokens, in the middle of a function call. Nothing may be called.

    Remedy: Raise the limit of tokens, or ask for less.
    """

    code = "incomplete_call"


class UnmappableError(ProviderError, errors.RefusedError):
    """The request holds what this provider has no form for, and the message names it. Nothing was sent.

    Remedy: Take it out of the context or the settings, or use another provider.
    """

    code = "unmappable"

    def __init__(self, provider: str, what: str) -> None:
        """`what` is a clause that names the thing, such as `the setting top_k`."""
        super().__init__(f"The provider {provider!r} cannot be asked this: {what}.")
        self.provider = provider
        self.what = what
