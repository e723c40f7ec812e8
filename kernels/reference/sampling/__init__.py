"""From logits to tokens: rules, penalties, filters, the draw, log-probabilities."""
