"""The scheduler's core studied without devices: shipped traces, a simulated worker, simulated time.

It knows the core by its events and commands alone, as the loop does; no sockets, no clock.
"""
