"""The loader: batches decoded by worker processes straight into shared memory.

    settings.py    what a loader was asked for, checked, as one frozen value
    schedule.py    which samples make batch k of an epoch; resume positions
    sample_maker.py  how one sample is made; what a worker needs to know
    sample_log.py  what goes wrong with samples, and what there is to say of them
    generators.py  the generators around user callables
    layout.py      how a batch lies in memory
    ring.py        the slots of shared memory, and who holds them
    worker.py      the loop of a worker process
    start.py       processes that start without the user's main module
    crew.py        who makes the batches of one iteration: threads, or the caller
    processes.py   the same in worker processes, into the ring
    crews.py       the crews of a loader: kept for the next iterator, ended with it
    iteration.py   one epoch: batches in order, errors, replacements
    loader.py      DataLoader

Nothing is imported here: workers load `worker` and what it needs, and torch is none of that.
"""
