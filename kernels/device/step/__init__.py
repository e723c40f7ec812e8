"""Triton forms of building a step's inputs and keeping the permanent rows up to date."""
