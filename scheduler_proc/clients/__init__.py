"""What the scheduler knows of its clients: who they are, what they may submit, what they are owed.

It does not know rows' memory or how steps are made.
"""
