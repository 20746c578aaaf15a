"""Cables with a latency: `python -m benchmarks.netns_cable NAME N SECONDS`, started by `netns`.

Makes N cables, each a pair of cards NAMEn0 and NAMEh0, and so on, and carries packets from one end
to the other, each so many seconds after it came. For kernels without netem. Cards take packets of
up to 64 KB, so a gigabit a second is some thousand packets. It ends with whoever started it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
OFFLOAD = 0x01 | 0x02 | 0x04  # checksums, and large packets of IPv4 and IPv6
LARGEST = (1 << 16) + 64


def card(name: str) -> int:
    """A card whose packets are read and written here."""
    opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(opened, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(opened, TUNSETVNETHDRSZ, struct.pack("i", 10))
    fcntl.ioctl(opened, TUNSETOFFLOAD, OFFLOAD)
    return opened


def carry(ends: dict[int, int], seconds: float) -> None:
    """Packets from each end to the other, until whoever started this is gone."""
    parent = os.getppid()
    waiting: deque[tuple[float, int, bytes]] = deque()  # all wait equally long: in order
    reads = list(ends)
    while os.getppid() == parent:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
        ready, _, _ = select.select(reads, [], [], wait)
        now = time.monotonic()
        for end in ready:
            with suppress(OSError):  # a card that is down
                waiting.append((now + seconds, ends[end], os.read(end, LARGEST)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, other, packet = waiting.popleft()
            with suppress(OSError):  # its packets are lost, as on a real cable
                os.write(other, packet)


def main() -> None:
    name, n, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with suppress(OSError):
        os.nice(-15)  # a cable does not wait for a processor
    ends: dict[int, int] = {}
    for k in range(n):
        a, b = card(f"{name}n{k}"), card(f"{name}h{k}")
        ends |= {a: b, b: a}
    print("ready", flush=True)
    carry(ends, seconds)


if __name__ == "__main__":
    main()
