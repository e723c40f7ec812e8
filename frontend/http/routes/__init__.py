"""The endpoints: each turns a request into jobs and a format, or answers by itself.

It owns paths and methods. It does not know how text is generated or written.
"""
