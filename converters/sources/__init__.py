"""Sources: each turns a place into `ImageRef`s, with nothing read yet."""
