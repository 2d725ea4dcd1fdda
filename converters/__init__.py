"""Conversion: from a folder of photos to one packed data set. Imported as `fastdata.converters`.

folder -> ImageRef (sources) -> Record (recode, in worker processes) -> file (writers); `convert` ties them together.
Nothing here imports torch, and the parent process does not import OpenCV.
"""
