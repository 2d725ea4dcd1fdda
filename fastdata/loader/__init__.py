"""The loader: batches made by worker processes, their images straight in shared memory.

docs/architecture.md says what each module is for. Nothing is imported here: workers load `worker` and what it needs,
and torch is none of that.
"""
