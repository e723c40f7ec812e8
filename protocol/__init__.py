"""What the processes of Octavo say to each other, and the rules both ends of every wire obey.

It owns the messages, their encoding, the sockets they travel on, the lifeline between a parent and its
children, the sampling parameters with their validation, and the exception tree. It does not know how a
message is acted on: no text, no scheduling, no tensors. Everyone imports it; it imports none of the others.
"""
