"""What clients get: answers whole and in pieces, and errors, in OpenAI's form.

It owns the bytes of every answer. A format turns chunks into frames and folded choices into a body; it knows
neither requests in flight nor HTTP connections.
"""
