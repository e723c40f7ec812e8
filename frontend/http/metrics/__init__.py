"""What the frontend tells Prometheus: requests, latencies, tokens delivered, the loop's lag.

It owns the names that are about requests; the scheduler owns those about batches and blocks. It also merges
the files of all processes into the page that /metrics shows. Nothing here may fail a request.
"""
