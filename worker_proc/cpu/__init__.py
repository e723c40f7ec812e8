"""The CPU as a device: torch operators, passive waiting, the same plans and rows as any other."""
