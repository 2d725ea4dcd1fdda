"""One header reader a container: `read(data) -> ImageInfo`, pure Python, nothing decoded, no memory taken.

Each tells the size, the turn, whether there is transparency, and whether the data end before the image does.
"""
