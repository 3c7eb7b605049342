#!/usr/bin/env python3
"""A collector of OTLP/HTTP in JSON: prints its process id and port, and a line for each span that it accepts.

The first argument is a list of statuses, such as "503,200": the answers to the first requests. The last one is
repeated.
Bodies are checked against the JSON encoding of the OpenTelemetry protocol. A body that breaks it prints "invalid"."""

import http.server
import json
import os
import re
import sys


def attributes(pairs):
    found = {}
    for pair in pairs:
        assert set(pair) == {"key", "value"} and isinstance(pair["key"], str), pair
        (kind, value), = pair["value"].items()
        assert kind in ("stringValue", "intValue"), pair
        assert isinstance(value, str), pair  # 64-bit numbers are text, too.
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


def lines_of(body):
    document = json.loads(body)
    assert set(document) == {"resourceSpans"}
    for resource in document["resourceSpans"]:
        service = attributes(resource["resource"]["attributes"])["service.name"]
        for scope in resource["scopeSpans"]:
            assert scope["scope"]["name"] == "hawser"
            for span in scope["spans"]:
                assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
                assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
                parent = span.get("parentSpanId", "-")
                assert parent == "-" or re.fullmatch("[0-9a-f]{16}", parent)
                begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                assert 0 < begin <= end
                assert span["kind"] in (2, 3)
                found = attributes(span["attributes"])
                assert found["rpc.system"] and found["rpc.method"]
                status = span["status"]
                assert status == {} or (status["code"] == 2 and isinstance(status["message"], str))
                yield " ".join([service, span["traceId"], span["spanId"], parent, str(span["kind"]),
                                str(status.get("code", 0)), found["hawser.recorded"], span["name"]])


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    statuses = [int(status) for status in sys.argv[1].split(",")]

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 200:
            try:
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                lines = list(lines_of(body))
            except (AssertionError, KeyError, ValueError) as error:
                lines = [f"invalid {error!r} {body!r}"]
            print("\n".join(lines), flush=True)
        answer = b"{}"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(os.getpid(), server.server_address[1], flush=True)
server.serve_forever()
