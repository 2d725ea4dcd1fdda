"""Images in and out: recognise bytes (`sniff`), decode them to RGB (`decode`), encode RGB (`encode`).

Every path that decodes goes through `decode.decode`, so one file gives one image wherever it is read. Nothing here
imports torch, touches files or knows where bytes came from.
"""
