"""What every route of a frontend works with, and whether the server could answer now."""

import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from ...protocol.errors import EngineUnavailableError, ModelNotFoundError
from ...protocol.lifecycle import ModelLimits
from ..engine.async_client import AsyncClient
from .config import FrontendConfig
from .metrics.requests import RequestMetrics
from .text_service import TextService

_STARTING = "the server is starting"
_ENDING = "the server is shutting down"
_RETRY_AFTER = 1.0  # seconds


class Service:
    """The parts of a running frontend. Text and engine are missing while it starts.

    Attributes:
        draining: no new request is taken, since the server ends.
        open_requests: requests for text that are being answered.
    """

    def __init__(self, config: FrontendConfig, *, metrics_dir: Path | None = None) -> None:
        """`metrics_dir` holds the metrics files of all processes; without one this process shows its own."""
        self.config = config
        self.registry = CollectorRegistry()
        self.metrics = RequestMetrics(self.registry)
        self.metrics_dir = metrics_dir
        self.started = int(time.time())  # seconds since the epoch
        self.draining = False
        self.open_requests = 0
        self._text: TextService | None = None
        self._engine: AsyncClient | None = None

    def attach(self, text: TextService, engine: AsyncClient) -> None:
        """The parts that take a while to load are there."""
        self._text, self._engine = text, engine

    def close(self) -> None:
        """Let the parts go; open streams fail."""
        if self._engine is not None:
            self._engine.close(_ENDING if self.engine_ready else self._engine.core.reason)
        if self._text is not None:
            self._text.close()

    @property
    def unready(self) -> str | None:
        """Why no generation could run now, for people; None when one could."""
        if self.draining:
            return _ENDING
        if self._text is None or self._engine is None:
            return _STARTING
        return None if self.engine_ready else self._engine.core.reason

    @property
    def engine_ready(self) -> bool:
        """Whether the engine could run a generation, whatever this process is about to do."""
        core = self._engine.core if self._engine is not None else None
        return core is not None and core.ready and core.limits is not None

    @property
    def engine_dead(self) -> bool:
        """Whether no generation will ever run again."""
        return self._engine is not None and self._engine.core.fatal

    def check_ready(self) -> None:
        """Raises EngineUnavailableError when no generation could run now."""
        if (reason := self.unready) is not None:
            raise EngineUnavailableError(reason, retry_after=_RETRY_AFTER)

    @property
    def text(self) -> TextService:
        """Raises EngineUnavailableError while the tokenizer is not loaded."""
        if self._text is None:
            raise EngineUnavailableError(_STARTING, retry_after=_RETRY_AFTER)
        return self._text

    @property
    def engine(self) -> AsyncClient:
        """Raises EngineUnavailableError while there is none."""
        if self._engine is None:
            raise EngineUnavailableError(_STARTING, retry_after=_RETRY_AFTER)
        return self._engine

    @property
    def limits(self) -> ModelLimits:
        """What requests must obey. Raises EngineUnavailableError before the scheduler was met."""
        limits = self.engine.core.limits
        if limits is None:
            raise EngineUnavailableError(self.engine.core.reason, retry_after=_RETRY_AFTER)
        return limits

    @property
    def max_model_len(self) -> int | None:
        """Tokens of prompt and output together; None as long as nobody has said so."""
        limits = self._engine.core.limits if self._engine is not None else None
        return self.config.max_model_len or None if limits is None else limits.max_model_len

    def served_name(self, asked: str | None) -> str:
        """The name under which a request is answered: the one it asked for, or the first one served.

        Raises ModelNotFoundError for a name that is not served.
        """
        names = self.config.served_names
        if asked is None:
            return names[0]
        if asked not in names:
            raise ModelNotFoundError(
                f"the model {asked!r} is not served here; there is {', '.join(names)}", param="model"
            )
        return asked
