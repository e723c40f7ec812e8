"""The outputs of some of an engine's requests, as they come."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Self

from ...protocol.errors import RequestAbortedError
from .llm_engine import LLMEngine
from .outputs import RequestOutput


class OutputStream(Iterator[RequestOutput]):
    """Iterates over the outputs of the requests `ids` until all have ended.

    Several may be read in turns: what one gains while another is read stays with its requests. Requests that
    are open when it is closed, or when the last reference to it goes, are aborted.
    """

    def __init__(self, engine: LLMEngine, ids: Sequence[str]) -> None:
        self._engine = engine
        self._open = set(ids)
        self._ready: deque[RequestOutput] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RequestOutput:
        """The next output.

        Raises EngineDeadError when the engine is gone, RequestAbortedError when somebody else ended requests.
        """
        if not self._ready and not self._open:
            raise StopIteration
        if not self._ready:
            try:
                self._step()
            except BaseException:
                self.close()
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """Abort what is still open. May be called twice."""
        ids, self._open = self._open, set()
        self._engine.abort_request(ids)

    def _step(self) -> None:
        outputs = self._engine.step_for(self._open)
        if not outputs:
            raise RequestAbortedError("the requests were ended before they were finished")
        self._ready.extend(outputs)
        self._open -= {output.request_id for output in outputs if output.finished}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
