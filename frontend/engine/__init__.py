"""The Python API, and the client's end of the wire to a scheduler.

It owns requests from prompt to text: tokenizing, submitting, putting deltas together, resubmitting after a
restart. It does not know HTTP, and it does not know how a request is scheduled.
"""
