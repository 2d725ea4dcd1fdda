"""Worker processes, of the loader and of the conversion: how they start, end with their parent, and are spoken of.

`WorkerProcess` is the parent's handle. It is made by `context.start`, through a start method of multiprocessing, or by
`fresh.start`, as a new interpreter. What a worker is sent and answers is the business of the package that starts it.
"""
