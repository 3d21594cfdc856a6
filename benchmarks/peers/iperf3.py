#!/usr/bin/env python3
"""Loopback TCP by iperf3: one line of JSON in the form described in benchmarks/README.md.

    iperf3.py [--streams N] [--bytes TOTAL] [--address 127.0.0.1]

The sample is what the receiver took, over all streams, in GB/s. Server and client are iperf3's own processes;
both have ended when this program ends, whatever happens.
"""

import argparse
import json
import socket
import subprocess
import sys
import time

LIMIT_S = 60


def free_port(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def client(address, port, options):
    command = ["iperf3", "-c", address, "-p", str(port), "-P", str(options.streams), "-n", str(options.bytes), "-J"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    return json.loads(ended.stdout or "{}")


def measure(options):
    port = free_port(options.address)
    command = ["iperf3", "-s", "-1", "-B", options.address, "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            report = client(options.address, port, options)
            if "error" not in report and "end" in report:
                return report
            # Until the server listens, the client is refused.
            refused = "refused" in report.get("error", "")
            if not refused or server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"iperf3: {report.get('error', 'no report')}")
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=256 << 20, help="over all streams")
    parser.add_argument("--address", default="127.0.0.1")
    options = parser.parse_args()
    report = measure(options)
    received = report["end"]["sum_received"]
    # The client ends once that much has been sent; what is then still in the sockets of other streams is not
    # received and not counted. Much less would mean that something else was measured.
    if received["bytes"] < options.bytes / 2:
        raise SystemExit(f"iperf3: only {received['bytes']} of {options.bytes} bytes arrived")
    version = report["start"]["version"].replace("iperf ", "iperf3 ")
    line = {
        "program": version,
        "benchmark": "tcp_stream",
        "ranks": 2,
        "streams": options.streams,
        "bytes": options.bytes,
        "unit": "GB/s",
        "samples": [received["bits_per_second"] / 8e9],
    }
    print(json.dumps(line, separators=(",", ":")))


if __name__ == "__main__":
    sys.exit(main())
