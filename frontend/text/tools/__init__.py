"""Calls of tools in the text of an answer: one module for each format in which models write them.

It owns the formats, and the reader that finds calls and passes their arguments on as they come. It does not
know reasoning, requests, or the form of an answer.
"""
