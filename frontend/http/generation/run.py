"""All prompts and choices of one HTTP request, as one sequence of chunks."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ....protocol.errors import RequestAbortedError, RequestTimeoutError
from ...engine.async_client import AsyncClient
from ...engine.logprobs import TokenLogprobs
from ...engine.stream import Stream
from ..metrics.requests import RequestMetrics
from ..requests.sampling import renamed
from .chunks import Chunk, PromptDetails, Usage
from .job import Job
from .progress import Progress
from .prompt_part import PromptPart, told_prompt

Chunks = list[Chunk]


class Reader(Protocol):
    """Who takes the chunks."""

    @property
    def paused(self) -> bool:
        """Nothing is taken now: what comes meanwhile is joined."""

    async def drain(self) -> None:
        """Wait until chunks are taken again."""

    def take(self, chunks: Chunks) -> None:
        """Take chunks, at least one."""


class Generation:
    """Submits the jobs of a request and hands on what their choices gain.

    Choice c of job j has the index j * n + c in the answer. One failure ends all.
    """

    def __init__(self, engine: AsyncClient, jobs: Sequence[Job], metrics: RequestMetrics) -> None:
        self._engine = engine
        self._jobs = jobs
        self._progress = [Progress(job, metrics) for job in jobs]
        self._prompts = [PromptPart(job) for job in jobs]
        self._streams: list[Stream] = []

    @property
    def num_choices(self) -> int:
        return sum(job.params.n for job in self._jobs)

    def usage(self) -> Usage:
        """The token counts so far."""
        prompt = sum(len(job.prompt_ids) for job in self._jobs)
        completion = sum(progress.num_tokens for progress in self._progress)
        cached = sum(stream.num_cached for stream in self._streams)
        return Usage(prompt, completion, prompt + completion, PromptDetails(cached))

    def prompt_logprobs(self, index: int, num_top: int) -> list[TokenLogprobs]:
        """Those of the prompt that the choice at `index` goes on from, once it has begun."""
        job = index // self._jobs[0].params.n
        return told_prompt(self._streams[job], num_top)

    async def start(self) -> None:
        """Submit all jobs and wait until each is in the queue. Raises OctavoError; then none is left."""
        try:
            for job in self._jobs:
                with renamed({"structured_outputs": job.grammar_field}):
                    await self._engine.compile_grammar(job.params)
                self._streams.append(self._submit(job))
            for stream in self._streams:
                await self._engine.accepted(stream)
        except BaseException as error:
            self.abort()
            # One that was not taken is no request; one that ended while it waited to be is.
            if isinstance(error, RequestTimeoutError | RequestAbortedError) or not isinstance(
                error, Exception
            ):
                self._failed(error)
            raise

    def abort(self) -> None:
        """End what still runs. May be called at any time, and again."""
        for stream in self._streams:
            if not stream.ended:
                self._engine.abort(stream)

    async def run(self, reader: Reader) -> None:
        """Hand the reader what the choices gain as it comes, until all have ended.

        Raises OctavoError when a job fails; the others end with it.
        """
        delivery = _Delivery(self._streams, self._take, reader)
        try:
            if echoes := self._echoes():
                reader.take(echoes)
            await delivery.run()
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            delivery.close()
            self.abort()

    def _failed(self, error: BaseException) -> None:
        for progress in self._progress:
            progress.failed(error)

    def _submit(self, job: Job) -> Stream:
        return self._engine.submit(
            job.prompt_ids,
            job.params,
            name=job.name,
            priority=job.priority,
            user=job.user,
            cache_salt=job.cache_salt,
        )

    def _echoes(self) -> Chunks:
        return [
            chunk for job, prompt in enumerate(self._prompts) for chunk in self._placed(job, prompt.opening())
        ]

    def _placed(self, job: int, chunks: Chunks) -> Chunks:
        """The chunks of a job with the indexes that their choices have in the answer."""
        if job:
            first_index = job * self._jobs[job].params.n
            for chunk in chunks:
                chunk.index += first_index
        return chunks

    def _take(self, job: int) -> Chunks:
        """What the choices of a job gained."""
        stream = self._streams[job]
        chunks = self._prompts[job].add_to(stream.take(), stream)
        if chunks:
            self._progress[job].took(chunks, stream)
        return self._placed(job, chunks)


class _Delivery:
    """Runs in the callback that reads the scheduler's message: a token wakes no task.

    A task waits for the end, for a failure, and for a reader that lags.
    """

    def __init__(self, streams: Sequence[Stream], take: Callable[[int], Chunks], reader: Reader) -> None:
        self._streams = streams
        self._take = take
        self._reader = reader
        self._running = len(streams)
        self._late: set[int] = set()  # jobs of which something was not taken
        self._failure: Exception | None = None
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Until all streams have ended. Raises what one failed with."""
        for job, stream in enumerate(self._streams):
            stream.on_change = partial(self._changed, job)
            self._changed(job)
        while self._running and self._failure is None:
            await self._woken.wait()
            self._woken.clear()
            await self._catch_up()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Nothing more is taken."""
        for stream in self._streams:
            stream.on_change = None

    async def _catch_up(self) -> None:
        while self._late and self._failure is None:
            await self._reader.drain()
            late, self._late = self._late, set()
            for job in late:
                self._changed(job)

    def _changed(self, job: int) -> None:
        if self._reader.paused:
            self._late.add(job)
            self._woken.set()
            return
        stream = self._streams[job]
        try:
            if chunks := self._take(job):
                self._reader.take(chunks)
        except Exception as error:
            self._fail(error)
            return
        if stream.ended and stream.on_change is not None:
            stream.on_change = None
            if stream.error is not None:
                self._fail(stream.error)
            self._running -= 1
            self._woken.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._woken.set()
