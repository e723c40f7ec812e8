"""What clients may send: bodies as typed structs, decoded strictly, with errors that name the field.

It owns the request schemas, the lists of fields that are accepted without effect or refused by name, and the
way from a body to sampling parameters. It does not know tokenizers, routes or answers.
"""
