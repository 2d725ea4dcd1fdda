"""Images in and out: what bytes are (`sniff`), bytes to RGB (`decode`), RGB to bytes (`encode`), sizes (`resize`).

Every path that decodes goes through `decode.decode`, so one file gives one image wherever it is read. Nothing here
imports torch, touches files or knows where bytes came from.
"""
