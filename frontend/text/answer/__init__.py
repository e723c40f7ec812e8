"""What a model's text means: reasoning, content, and calls of tools, told apart as the text comes.

It owns the pieces of an answer and the reader that finds them. Readers work on characters, so that the
borders of the chunks in which a text arrives cannot matter. It does not know tokens, HTTP, or the form of an
answer.
"""
