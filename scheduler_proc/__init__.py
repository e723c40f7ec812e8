"""The process that decides what every step computes.

It owns requests once they are token ids: the queue, the batches, the block tables, the prefix cache and
admission. Its core is a pure state machine: events in, commands out. It does not know text, HTTP, tensors
or devices.
"""
