"""One header reader per container: `read(data) -> ImageInfo`, in pure Python, without decoding or allocating pixels.

Each reads the size, the orientation, whether there is transparency, and whether the data end before the image does.
"""
