"""What a transformer layer does besides attention."""
