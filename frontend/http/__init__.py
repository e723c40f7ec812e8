"""The HTTP server: OpenAI's API, and a little more, in front of a scheduler.

It owns routes, request and answer schemas, errors as clients see them, server-sent events, request metrics,
and the life of the frontend process. It turns a body into token ids and sampling parameters, and updates of
choices into chunks; streamed and whole answers are two readings of the same chunks. It does not know the
wire to the scheduler (the engine's client does), nor how text is made of tokens.
"""
