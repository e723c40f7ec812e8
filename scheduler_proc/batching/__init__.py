"""Which tokens a step computes, and what its result means: rows, the queue, admission, plans, results.

It does not know clients beyond the number that says where a row's tokens go.
"""
