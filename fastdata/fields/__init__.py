"""The kinds of values in samples: how each is decoded, moved by geometry, encoded and batched."""
