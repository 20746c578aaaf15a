"""Two machines in one: `python -m benchmarks.netns [--json]`, as root on Linux.

Makes two network namespaces joined by a pair of virtual cards. A Ray head runs in the first, a
second node in the other, the driver beside the head. Every case has to end with the SHA-256 over
all draws that `serial` gives. The card's counters tell how many bytes went over the wire beside
those that the engine reports; for that, one run has all its workers on the far node.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.faults_nodes import alive, descendants, kill_process, wait_for
from benchmarks.faults_runs import Run

# Here are two machines: Ray shall not keep to the loopback.
os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)
# Nodes and driver know each other by a word of their own.
WORD = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

NEAR, FAR = ("bayesmf-near", "10.77.0.1"), ("bayesmf-far", "10.77.0.2")
CARD = "bmf0"
PORT = 6399
CASES = ("DSGLD-S 3x3", "DSGLD-C 4x1", "default")


def ip(*words: str) -> str:
    """Call `ip` of iproute2 and return what it prints."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def inside(name: str) -> list[str]:
    """What makes a command run in a namespace."""
    return ["ip", "netns", "exec", name]


def join(stack: ExitStack) -> None:
    """Two namespaces, and a card in each that is wired to the other's."""
    for name, _ in (NEAR, FAR):
        ip("netns", "add", name)
        stack.callback(ip, "netns", "del", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("link", "add", CARD, "netns", NEAR[0], "type", "veth", "peer", CARD, "netns", FAR[0])
    for name, address in (NEAR, FAR):
        ip("-n", name, "address", "add", f"{address}/24", "dev", CARD)
        ip("-n", name, "link", "set", CARD, "up")


def counters() -> tuple[int, int]:
    """Bytes that the near card has sent and received."""
    (card,) = json.loads(ip("-j", "-s", "-n", NEAR[0], "link", "show", "dev", CARD))
    return card["stats64"]["tx"]["bytes"], card["stats64"]["rx"]["bytes"]


def start_node(stack: ExitStack, where: tuple[str, str], log: Path, *options: str) -> None:
    """A node that lives as long as `stack`."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
    command += ["--node-ip-address", where[1], "--disable-usage-stats"]
    with log.open("w") as file:
        process = subprocess.Popen([*inside(where[0]), *command], stdout=file, stderr=file)
    stack.callback(end_node, process)
    if not wait_for(lambda: "runtime started" in log.read_text() or process.poll(), 60, 0.05):
        raise SystemExit("netns: a node did not start within 60 s")
    if process.poll() is not None:
        raise SystemExit(f"netns: a node did not start: {log.read_text().strip()[-300:]}")


def end_node(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and see to it that nothing is left."""
    everyone = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: process.poll() is not None and not any(map(alive, everyone)), 15)
    for one in filter(alive, everyone):
        kill_process(one[0])
    process.kill()
    process.wait()


def fit(folder: Path, name: str, order: dict[str, Any]) -> dict[str, Any]:
    """One run, with the bytes that passed the card meanwhile."""
    before = counters()
    found = Run(folder / name.replace(" ", "-"), order).wait()
    if found["status"] != "done":
        raise SystemExit(f"netns: {name}: {found['error']}")
    sent, received = (now - then for now, then in zip(counters(), before, strict=True))
    return {**found, "wire_sent": sent, "wire_received": received}


def measure(folder: Path) -> list[dict[str, Any]]:
    """Every case spread over both nodes, and a heavy one on the far node alone."""
    orders = [(case, {"n_workers": 4}) for case in CASES]
    orders += [("heavy 2x2", {"n_workers": 2, "resources": {"far": 1}})]
    lines = []
    with ExitStack() as stack:
        join(stack)
        ray_folder = tempfile.mkdtemp(prefix="bmf")  # short, for the names of sockets
        stack.callback(shutil.rmtree, ray_folder, ignore_errors=True)
        common = ["--num-cpus=2", f"--object-store-memory={200 << 20}"]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={ray_folder}"]
        start_node(stack, NEAR, folder / "head.log", *head, *common)
        far = [f"--address={NEAR[1]}:{PORT}", '--resources={"far": 4}']
        start_node(stack, FAR, folder / "far.log", *far, *common)
        for case, cluster in orders:
            serial = fit(folder, f"serial {case}", {"case": case, "engine": "serial"})
            engine = {"address": f"{NEAR[1]}:{PORT}", **cluster}
            order = {"case": case, "engine": engine, "prefix": inside(NEAR[0])}
            found = fit(folder, f"ray {case}", order)
            lines.append({
                "case": case, "same": found["sha256"] == serial["sha256"],
                "sha256": found["sha256"], "seconds": found["engine"]["seconds"],
                **{k: found["engine"][k] for k in ("nodes", "hosts", "faults", "ratings_bytes_sent",
                                                   "bytes_sent", "bytes_received")},
                **{k: found[k] for k in ("wire_sent", "wire_received")},
            })  # fmt: skip
            show(lines[-1])
    return lines


def show(line: dict[str, Any]) -> None:
    """A case in one line, on stderr."""
    out, back = (
        f"{line[f'bytes_{way}'] / 1e6:.1f} MB {way}, {line[f'wire_{way}'] / 1e6:.1f} on the wire"
        for way in ("sent", "received")
    )
    print(
        f"{line['case']:<13}{line['nodes']} nodes {line['seconds']:>6.1f} s  "
        f"{'same' if line['same'] else 'DIFFERENT'}  {out}; {back}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """A line for each case; 0 if all end the same."""
    parser = Parser("netns", __doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        parser.error("network namespaces need Linux, root, and the command ip (iproute2)")
    os.environ.update(WORD)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder))
    if args.json:
        print(json.dumps(lines))
    return 0 if all(line["same"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
