"""Benchmarks through the real processes: named work on named shapes, each line beside its physical bound.

It measures as a client does; what a device does inside a step is the worker's own benchmark's to say.
"""
