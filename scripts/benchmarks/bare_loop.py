"""The least that a conversion can do, to compare with: read, decode, INTER_AREA, encode, append to a file.

`bare_loop.py SRC OUT SIDE WORKERS`: every process takes each WORKERS-th file and appends to a file of its own.
No order, no index, no checks, no orientation, nothing made safe.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

import cv2
import numpy as np


def convert(files: list[str], out: str, side: int) -> None:
    cv2.setNumThreads(1)
    with open(out, "ab") as target:
        for path in files:
            with open(path, "rb") as file:
                image = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_COLOR)
            if image is None:
                continue
            height, width = image.shape[:2]
            shorter = min(height, width)
            if shorter > side:
                size = (round(width * side / shorter), round(height * side / shorter))
                image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            target.write(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())


def main(source: str, out: str, side: int, workers: int) -> int:
    files = sorted(os.path.join(parent, name) for parent, _, names in os.walk(source) for name in names)
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    context = multiprocessing.get_context(method)
    processes = [
        context.Process(target=convert, args=(files[start::workers], f"{out}.{start}", side))
        for start in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode or 0) for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
