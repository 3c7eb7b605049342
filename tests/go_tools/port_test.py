#!/usr/bin/env python3
"""Runs grpcurl, ghz and h2spec against `hawser demo serve`. port_test.py PROGRAM CASE; exits 77 with the reason where
tool.py cannot build them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TOOL = pathlib.Path(__file__).resolve().parent / "tool.py"
SKIPPED = 77
PROGRAM = sys.argv[1]
# Detects hangs only.
TIME_LIMIT_S = 300

# Cases of h2spec that the port fails by design: docs/protocols/grpc.md, "h2spec".
H2SPEC_EXCEPTIONS = {
    "3.5. HTTP/2 Connection Preface: Sends invalid connection preface",
    "4.2. Frame Size: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE",
}
H2SPEC_ATTEMPTS = 10
H2SPEC_CASES_MIN = 140


class Server:
    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "demo", "serve"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.address = self.process.stdout.readline().rpartition(" ")[2].strip()
        return self.address

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(timeout=60) != 0:
            sys.exit(f"hawser demo serve ended with status {self.process.returncode}")


def run(*arguments, text=None):
    result = subprocess.run([sys.executable, "-B", TOOL, *arguments], input=text, capture_output=True, text=True,
                            timeout=TIME_LIMIT_S)
    if result.returncode == SKIPPED:
        print(result.stdout.strip())
        sys.exit(SKIPPED)
    return result


def expect(arguments, out=None, status=0, error=""):
    """Runs a program. `out` are parts of its standard output, or a value if it is JSON. Returns the output."""
    result = run(*arguments)
    text = f"{' '.join(arguments)}: status {result.returncode}\n{result.stdout}\n{result.stderr}"
    if result.returncode != status or error not in result.stderr:
        sys.exit(text)
    if isinstance(out, (list, tuple)):
        missing = [part for part in out if part not in result.stdout]
        if missing:
            sys.exit(f"{missing} is missing in\n{text}")
    elif out is not None and values(result.stdout) != [out]:
        sys.exit(text)
    return result.stdout


def values(text):
    """The JSON values of a text, one after another."""
    found = []
    while text := text.strip():
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def grpcurl():
    """Reflection (grpcurl asks for v1 first) and calls of each kind."""
    with Server() as address:
        plain = ("grpcurl", "-plaintext")
        services = expect((*plain, address, "list")).split()
        assert services == ["demo.ShopService", "example.EchoService", "grpc.health.v1.Health",
                            "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"], services
        methods = expect((*plain, address, "list", "demo.ShopService")).split()
        assert methods == [f"demo.ShopService.{name}" for name in ("Buy", "Chat", "Order", "Watch")], methods
        expect((*plain, address, "describe", "demo.ShopService"),
               ["rpc Buy ( stream .demo.Item ) returns ( .demo.Receipt );",
                "rpc Watch ( .demo.WatchRequest ) returns ( stream .demo.Event );"])
        expect((*plain, address, "describe", "demo.OrderRequest"), ["string item = 1;", "int32 count = 2;"])
        expect((*plain, address, "describe", "demo.Nothing"), status=1, error="demo.Nothing")
        # The services of the library describe themselves.
        for version in ("v1", "v1alpha"):
            expect((*plain, address, "describe", f"grpc.reflection.{version}.ServerReflection"),
                   [f"rpc ServerReflectionInfo ( stream .grpc.reflection.{version}.ServerReflectionRequest )"])
        for file, message in (("health.v1", "HealthListResponse"), ("reflection.v1", "ServerReflectionResponse"),
                              ("reflection.v1alpha", "ServerReflectionRequest")):
            expect((*plain, address, "describe", f"grpc.{file}.{message}"), [f"message {message} {{"])
        expect((*plain, address, "grpc.health.v1.Health/Check"), {"status": "SERVING"})
        expect((*plain, address, "grpc.health.v1.Health/List"), ['"SERVING"'])
        expect((*plain, "-d", '{"host": "h", "list_services": ""}', address,
                "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
               ['"validHost": "h"', '"name": "demo.ShopService"'])
        expect((*plain, "-d", '{"item": "tea", "count": 2}', address, "demo.ShopService/Order"),
               {"number": "1", "text": "2 x tea"})
        expect((*plain, "-d", '{"item": "tea", "count": 0}', address, "demo.ShopService/Order"),
               status=64 + 3, error="Code: InvalidArgument\n  Message: count is 0: order at least 1 item")
        expect((*plain, "-d", '{"name": "a"} {"name": "b", "count": 3}', address, "demo.ShopService/Buy"),
               {"items": 4, "names": ["a", "b"]})
        events = values(expect((*plain, "-d", '{"events": 100}', address, "demo.ShopService/Watch")))
        assert [event["number"] for event in events] == list(range(1, 101)), events
        replies = values(expect((*plain, "-d", '{"name": "a"} {"name": "b"}', address, "demo.ShopService/Chat")))
        assert replies == [{"number": 1, "text": "a is in stock"}, {"number": 2, "text": "b is in stock"}], replies
        expect((*plain, "-max-time", "0.05", "-d", '{"events": 10, "interval_ms": 60000}', address,
                "demo.ShopService/Watch"), status=64 + 4, error="DeadlineExceeded")


def ghz():
    """Two thousand calls of each kind, 50 at a time, over one connection and over ten."""
    with Server() as address:
        for method, data, options in (
                ("Order", {"item": "tea", "count": 2}, ()),
                ("Order", {"item": "tea", "count": 2}, ("--connections", "10")),
                ("Watch", {"events": 20}, ()),
                ("Buy", [{"name": "a"}, {"name": "b"}], ()),
                ("Chat", [{"name": "a"}, {"name": "b"}], ("--connections", "10"))):
            report = json.loads(expect(("ghz", "--insecure", "--call", f"demo.ShopService/{method}", "--total", "2000",
                                        "--concurrency", "50", "--timeout", "120s", "--data", json.dumps(data),
                                        "--format", "json", *options, address)))
            calls = report["count"], report["statusCodeDistribution"], report["errorDistribution"]
            if calls != (2000, {"OK": 2000}, {}):
                sys.exit(f"{method}: {calls}")


def h2spec_results(address, path, *sections):
    """Returns {name: (section, whether it has passed)} of the cases, and the output."""
    host, port = address.rsplit(":", 1)
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        result = run("h2spec", "--strict", "--host", host, "--port", port, "--path", path, "--timeout", "2",
                     "--junit-report", file.name, *sections)
        suites = xml.etree.ElementTree.parse(file.name).getroot()
    cases = {}
    for suite in suites.iter("testsuite"):
        for case in suite.iter("testcase"):
            passed = case.find("failure") is None and case.find("error") is None
            cases[f"{suite.get('name')}: {case.get('classname')}"] = suite.get("package"), passed
    if not cases:
        sys.exit(f"h2spec has run no case:\n{result.stdout}{result.stderr}")
    return cases, result.stdout


def h2spec():
    """A path that reads its request, so that the server answers after the last frame of the client. A few cases are a
    race with that answer, and h2spec waits for two seconds only, so that a section is repeated after a surprise. What
    remains is what the server does in each attempt."""
    with Server() as address:
        path = "/example.EchoService/Echo"
        cases, output = h2spec_results(address, path, "generic", "http2", "hpack")
        failed = sum(not passed for _, passed in cases.values())
        print(f"{len(cases)} cases, {failed} of which have failed", flush=True)
        if len(cases) < H2SPEC_CASES_MIN or not H2SPEC_EXCEPTIONS <= cases.keys():
            sys.exit(f"{len(cases)} cases, of which at least {H2SPEC_CASES_MIN} and the exceptions were expected:\n{output}")
        surprises = {name: section for name, (section, passed) in cases.items() if passed == (name in H2SPEC_EXCEPTIONS)}
        for _ in range(H2SPEC_ATTEMPTS - 1):
            if not surprises:
                return
            print(f"again: {sorted(surprises)}", flush=True)
            # h2spec runs only the inner one of two sections if one contains the other.
            for section in set(surprises.values()):
                cases, output = h2spec_results(address, path, section)
                for name, (_, passed) in cases.items():
                    if passed != (name in H2SPEC_EXCEPTIONS):
                        surprises.pop(name, None)
        if surprises:
            sys.exit(f"{output}\nin {H2SPEC_ATTEMPTS} attempts these fail, or pass although they are exceptions: "
                     f"{sorted(surprises)}")


{"grpcurl": grpcurl, "ghz": ghz, "h2spec": h2spec}[sys.argv[2]]()
