"""Worker processes of the loader and of the conversion: how they start, end with their parent, and are described.

`WorkerProcess` is the parent's handle. It is made by `context.start`, through a start method of multiprocessing, or by
`fresh.start`, as a new interpreter. The package that starts a worker defines the messages between them.
"""
