"""A web application with an engine of its own: `uvicorn fastapi_app:app`, then GET /generate?prompt=Hello."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from octavo import AsyncLLMEngine, EngineArgs, SamplingParams


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncLLMEngine.from_engine_args(
        EngineArgs(model="demo", device="cpu", dtype="float32")
    ) as engine:
        app.state.engine = engine
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/generate")
async def generate(prompt: str, max_tokens: int = 24) -> StreamingResponse:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, stream=True)

    async def pieces() -> AsyncIterator[str]:
        async for output in app.state.engine.generate(prompt, params):
            yield output.outputs[0].text

    return StreamingResponse(pieces(), media_type="text/plain")
