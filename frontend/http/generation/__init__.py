"""From prompts and sampling parameters to an answer: submit, merge, stream or fold, end when the client goes.

It owns the one path that every endpoint for text takes. It does not know request schemas or the form of an
answer (a format does), nor the wire to the scheduler (the engine does).
"""
