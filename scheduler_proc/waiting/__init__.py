"""Requests that wait: in which order they are taken, what they wait for, and how long it will be.

It does not know rows, blocks or plans.
"""
