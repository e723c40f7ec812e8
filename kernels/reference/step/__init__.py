"""Building a step's inputs from permanent rows, and keeping those rows up to date."""
