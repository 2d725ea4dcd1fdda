"""What samples are made of: for each kind of value how it is decoded, moved by geometry, encoded and batched."""
