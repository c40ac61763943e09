"""The decisions: pure functions over the model. No I/O, no clock, no randomness but what is handed in."""
