#!/usr/bin/env python3
"""Compares a capture to an object store with a capture to a local file that is copied to the store afterwards.

Usage: bench/upload.py VMCORE --pagehaul PAGEHAUL --server VERSITYGW [--rounds N] [--scratch DIRECTORY]
The server runs on the loopback interface, with its objects in the scratch directory. `curl` copies.
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

ID, SECRET = "AKIDBENCH", "secret-of-the-benchmark"
CASES = (("-d 31", ["-d", "31"]), ("-d 0 -c zstd", ["-d", "0", "-c", "zstd"]), ("-d 0 -c none", ["-d", "0", "-c", "none"]))


def start(server, directory):
    """Starts the server. Returns its process and its URL."""
    for name in ("objects/crashes", "attributes"):
        (directory / name).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [server, "--access", ID, "--secret", SECRET, "--region", "us-east-1", "--port", f"127.0.0.1:{port}",
               "posix", "--sidecar", directory / "attributes", directory / "objects"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.1)
    process.kill()
    sys.exit("upload: the server does not listen")


def seconds(*commands, environment):
    """Returns how long commands take, one after the other."""
    began = time.monotonic()
    for command in commands:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vmcore")
    parser.add_argument("--pagehaul", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", default="/var/tmp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        scratch = pathlib.Path(scratch)
        server, url = start(options.server, scratch)
        environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "NO_PROXY": "127.0.0.1", "AWS_ENDPOINT_URL": url,
                       "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET}
        try:
            for name, arguments in CASES:
                compare(options, scratch, url, environment, name, arguments)
        finally:
            server.kill()
            server.wait()


def compare(options, scratch, url, environment, name, arguments):
    capture = [options.pagehaul, "capture", "-q", *arguments, options.vmcore]
    dump, stored = scratch / "dump", scratch / "objects/crashes"
    uploads, local_runs, copies = [], [], []
    for _ in range(options.rounds):
        # The server remembers objects whose files are removed.
        key = uuid.uuid4().hex
        uploads.append(seconds([*capture, f"s3://crashes/{key}.flat"], environment=environment))
        local_runs.append(seconds([*capture, dump], environment=environment))
        copy = ["curl", "--silent", "--fail", "--user", f"{ID}:{SECRET}", "--aws-sigv4", "aws:amz:us-east-1:s3", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--upload-file", dump,
                f"{url}/crashes/{key}"]
        copies.append(seconds(copy, environment=environment))
        size = dump.stat().st_size
        for path in (dump, stored / f"{key}.flat", stored / key):
            path.unlink()
    ratios = [upload / (local + copy) for upload, local, copy in zip(uploads, local_runs, copies)]
    upload, local, copy, ratio = map(statistics.median, (uploads, local_runs, copies, ratios))
    print(f"| `{name}` | {size >> 20} MiB | {upload:.2f} | {local:.2f} + {copy:.2f} | {ratio:.2f} |", flush=True)


main()
