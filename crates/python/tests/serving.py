"""A server of dumps on the loopback interface. It is a thread of this process, so it answers only while the package has released the
GIL.
"""

import contextlib
import http.server
import os
import pathlib
import socketserver
import threading
import unittest.mock
import urllib.parse

DUMPS = pathlib.Path(os.environ["PAGEHAUL_DUMPS"])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests for ranges of the server's files."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.server.requests.append((url.path, dict(urllib.parse.parse_qsl(url.query))))
        data = self.server.files.get(url.path)
        if data is None:
            self.answer(404, b"")
            return
        first, last = map(int, self.headers["Range"][len("bytes="):].split("-"))
        last = min(last, len(data) - 1)
        self.answer(206, data[first : last + 1], ("Content-Range", f"bytes {first}-{last}/{len(data)}"), ("ETag", self.server.version))

    def answer(self, status, body, *headers):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.server.sent += len(body)

    def log_message(self, *arguments):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.version = files, "v1"
        self.requests, self.connections, self.sent = [], 0, 0

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


@contextlib.contextmanager
def serving(files):
    """Runs a server of files, by their paths in its URLs."""
    settings = {"NO_PROXY": "127.0.0.1", "AWS_EC2_METADATA_DISABLED": "true"}
    with Server(files) as server, unittest.mock.patch.dict(os.environ, settings):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def dumps(*names):
    return {f"/{name}": (DUMPS / name).read_bytes() for name in names}
