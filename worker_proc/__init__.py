"""The process that owns one device.

It holds the model's weights, the KV tensors and one permanent row per running request; it executes step
plans in the order they arrive and answers each with a step result. It does not know requests, clients,
queues or text: a row is all it sees of a request.
"""
