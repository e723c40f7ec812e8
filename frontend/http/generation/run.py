"""All prompts and choices of one HTTP request, as one sequence of chunks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ...engine.async_client import AsyncClient
from ...engine.stream import Stream
from ..metrics.requests import RequestMetrics
from .chunks import Chunk, PromptDetails, Usage
from .job import Job
from .progress import Progress

Chunks = list[Chunk]
_QUEUED = 256  # lists of chunks of all prompts together that wait for the client to read


class Generation:
    """Submits the jobs of a request and yields what their choices gain.

    Choice c of job j has the index j * n + c in the answer. One failure ends all.
    """

    def __init__(self, engine: AsyncClient, jobs: Sequence[Job], metrics: RequestMetrics) -> None:
        self._engine = engine
        self._jobs = jobs
        self._progress = [Progress(job, metrics) for job in jobs]
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

    async def start(self) -> None:
        """Submit all jobs and wait until each is in the queue. Raises OctavoError; then none is left."""
        try:
            for job in self._jobs:
                await self._engine.compile_grammar(job.params)
                self._streams.append(self._submit(job))
            for stream in self._streams:
                await self._engine.accepted(stream)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End what still runs. May be called at any time, and again."""
        for stream in self._streams:
            if not stream.ended:
                self._engine.abort(stream)

    async def chunks(self) -> AsyncGenerator[Chunks, None]:
        """What the choices gain as it comes, at least one chunk at a time.

        Raises OctavoError when a job fails; the others end with it.
        """
        try:
            if echoes := self._echoes():
                yield echoes
            if len(self._jobs) == 1:
                progress, stream = self._progress[0], self._streams[0]
                async for chunks in self._engine.updates(stream):
                    progress.took(chunks, stream)
                    yield chunks
            else:
                async with aclosing(self._merged()) as merged:
                    async for chunks in merged:
                        yield chunks
        except BaseException as error:
            for progress in self._progress:
                progress.failed(error)
            raise
        finally:
            self.abort()

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
            Chunk(index * job.params.n + choice, job.echo, (), None)
            for index, job in enumerate(self._jobs)
            for choice in range(job.params.n if job.echo else 0)
        ]

    async def _merged(self) -> AsyncGenerator[Chunks, None]:
        queue: asyncio.Queue[Chunks | Exception | None] = asyncio.Queue(_QUEUED)
        pumps = [asyncio.create_task(self._pump(job, queue)) for job in range(len(self._jobs))]
        running = len(pumps)
        try:
            while running:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            for task in pumps:
                task.cancel()

    async def _pump(self, job: int, queue: "asyncio.Queue[Chunks | Exception | None]") -> None:
        """Put the chunks of a job into the queue, and behind them None or what it failed with."""
        progress, stream = self._progress[job], self._streams[job]
        first_index = job * self._jobs[job].params.n
        try:
            async for chunks in self._engine.updates(stream):
                progress.took(chunks, stream)
                for chunk in chunks:
                    chunk.index += first_index
                await queue.put(chunks)
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)
