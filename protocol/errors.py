"""Every exception Octavo raises on purpose, and the one HTTP status each maps to.

OctavoError
├── InvalidRequestError (ValueError)     400  a value is wrong; `param` names the field
│   ├── ContextLengthError               400  prompt and output do not fit the context or the KV pool
│   ├── ModelNotFoundError               404  no model of that name is served
│   ├── UnsupportedError                 400  a known feature that this server does not have
│   ├── BodyTooLargeError                413  the body is over the server's bound
│   └── ContentTypeError                 415  the body is not declared as JSON
├── AuthenticationError                  401  no API key, or a wrong one
├── QueueFullError                       429  refused by a queue bound; `retry_after` in seconds
├── RequestTimeoutError (TimeoutError)   504  the request's deadline passed
├── RequestAbortedError                  499  ended by its client or by an operator
├── SlowClientError                      503  its client did not read; the bound on unsent deltas was passed
├── RequestFailedError                   500  this request alone failed inside the engine
├── EngineUnavailableError               503  not ready yet, restarting or draining; try again
├── EngineDeadError                      503  the engine ended and will not come back
├── ProtocolError                        400  a message that does not decode, or of another schema
└── StartupError                          -   a process could not start; `exit_status` is what it ends with
    ├── UsageError                       exit 2
    ├── ModelError                       exit 3  model folder, config, tokenizer or weights
    ├── PortInUseError                   exit 4
    ├── OutOfMemoryError                 exit 5
    ├── ProcessDiedError                 exit 6  a process of the server ended and was not restarted
    └── RankLostError                    exit 7  another rank of this worker's group is gone

A `kind` is the class's name on the wire.
"""

from typing import ClassVar


class OctavoError(Exception):
    """Base of all; `kind` is its stable name on the wire, `status`, `type` and `code` its form over HTTP."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal_error"
    code: ClassVar[str | None] = None  # OpenAI's, where it has one

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        return type(self).__name__


class InvalidRequestError(OctavoError, ValueError):
    status = 400
    type = "invalid_request_error"


class ContextLengthError(InvalidRequestError):
    code = "context_length_exceeded"


class ModelNotFoundError(InvalidRequestError):
    status = 404
    code = "model_not_found"


class UnsupportedError(InvalidRequestError):
    code = "unsupported"


class BodyTooLargeError(InvalidRequestError):
    status = 413


class ContentTypeError(InvalidRequestError):
    status = 415


class AuthenticationError(OctavoError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class QueueFullError(OctavoError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class RequestTimeoutError(OctavoError, TimeoutError):
    status = 504
    type = "timeout_error"


class RequestAbortedError(OctavoError):
    status = 499
    type = "aborted"


class SlowClientError(OctavoError):
    status = 503
    type = "slow_client"


class RequestFailedError(OctavoError):
    pass


class EngineUnavailableError(OctavoError):
    status = 503
    type = "service_unavailable"


class EngineDeadError(OctavoError):
    status = 503
    type = "service_unavailable"


class ProtocolError(OctavoError):
    status = 400
    type = "protocol_error"


class StartupError(OctavoError):
    exit_status: ClassVar[int] = 1


class UsageError(StartupError):
    exit_status = 2


class ModelError(StartupError):
    exit_status = 3


class PortInUseError(StartupError):
    exit_status = 4


class OutOfMemoryError(StartupError):
    exit_status = 5


class ProcessDiedError(StartupError):
    exit_status = 6


class RankLostError(StartupError):
    exit_status = 7


def _tree(root: type[OctavoError]) -> dict[str, type[OctavoError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


_BY_KIND = _tree(OctavoError)


def from_kind(
    kind: str, message: str, *, param: str | None = None, retry_after: float | None = None
) -> OctavoError:
    """The exception that a `kind` received from a wire stands for; an unknown kind is an `OctavoError`."""
    return _BY_KIND.get(kind, OctavoError)(message, param=param, retry_after=retry_after)
