"""The scheduler as a pure state machine: its events, commands, state and invariants.

Nothing in here or in the packages it uses opens a socket, reads a clock, starts a thread or draws a random
number; time arrives in events. It does not know how events come in or commands go out.
"""
