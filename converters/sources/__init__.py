"""Sources: each turns a path into `ImageRef`s, with nothing read yet."""
