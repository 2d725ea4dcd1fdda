"""Mounts: which devices are pseudo file systems, whose files the kernel generates.

They hold no images, and a walk through `/proc` does not end in practice: each process leads back to the root.
"""

from __future__ import annotations

import os

# File systems that mirror the kernel. Those in memory (tmpfs) are not listed: they hold files of users.
_PSEUDO = frozenset(
    (
        "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl",
        "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
    )
)  # fmt: skip


def pseudo_devices(table: str = "/proc/self/mountinfo") -> dict[int, str]:
    """The device numbers of all pseudo file systems that are mounted, with the type of each.

    Args:
        table: the kernel's table of mounts (proc_pid_mountinfo(5)). Where there is none, nothing is known.
    """
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        mount, _, described = line.partition(" - ")
        kind, fields = described.partition(" ")[0], mount.split(" ")
        major, _, minor = fields[2].partition(":") if len(fields) > 2 else ("", "", "")
        if kind in _PSEUDO and major.isdecimal() and minor.isdecimal():
            found[os.makedev(int(major), int(minor))] = kind
    return found
