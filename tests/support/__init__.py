"""What several test folders share: small models with known answers, written without torch."""
