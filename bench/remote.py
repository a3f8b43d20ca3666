"""Measures a command on dumps of a server that answers each request after a delay: seconds, requests, bytes, requests in flight.

Usage: remote.py PAGEHAUL DUMP... [--delay MS...] [--command NAME] [--json FILE]

The server is a thread of this process, on the loopback interface, so that only the delay is like that of a network."""

import argparse
import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import time


class Server(http.server.ThreadingHTTPServer):
    """Serves ranges of files, and counts."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.delay = 0.0
        self.lock = threading.Lock()
        self.reset()

    def reset(self):
        self.requests = self.bytes = self.in_flight = self.most = self.connections = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        with server.lock:
            server.requests += 1
            server.in_flight += 1
            server.most = max(server.most, server.in_flight)
        time.sleep(server.delay)
        path = server.files[int(self.path.rsplit("/", 1)[1])]
        size = path.stat().st_size
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        last = min(last, size - 1)
        with path.open("rb") as file:
            body = os.pread(file.fileno(), last - first + 1, first)
        with server.lock:
            server.bytes += len(body)
            server.in_flight -= 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def measure(server, binary, command, number, delay):
    server.delay = delay / 1000
    server.reset()
    start = time.monotonic()
    url = f"http://127.0.0.1:{server.server_port}/{number}"
    subprocess.run([binary, *command, url], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {
        "dump": server.files[number].name,
        "delay_ms": delay,
        "seconds": round(time.monotonic() - start, 2),
        "requests": server.requests,
        "mib": round(server.bytes / 2**20, 1),
        "in_flight": server.most,
        "connections": server.connections,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("dumps", nargs="+", type=pathlib.Path)
    parser.add_argument("--delay", nargs="+", type=float, default=[0, 20, 100])
    parser.add_argument("--command", default="triage")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    server = Server(arguments.dumps)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = []
    print("| dump | delay, ms | seconds | requests | MiB | in flight |\n|---|---|---|---|---|---|")
    for number in range(len(arguments.dumps)):
        for delay in arguments.delay:
            row = measure(server, arguments.binary, arguments.command.split(), number, delay)
            rows.append(row)
            print("| {dump} | {delay_ms:g} | {seconds:.1f} | {requests} | {mib} | {in_flight} |".format(**row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


main()
