#!/usr/bin/env python3
"""Runs the hawser command as a user would. smoke_test.py PROGRAM CASE; exits 77 where the machine can't."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import xml.etree.ElementTree


def run(*arguments):
    return subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)


def expect(condition, result):
    if not condition:
        sys.exit(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")


def complaints(result):
    """Returns the lines of stderr. A busy machine may keep a loop from running, which the loop reports."""
    return [line for line in result.stderr.splitlines() if "(LoopOptions::blocked_max is" not in line]


def version():
    result = run("--version")
    expect(result.returncode == 0 and result.stdout.count(".") == 2, result)


def wrong_options():
    for arguments in ((), ("dance",), ("doctor", "--nonsense"), ("doctor", "--require", "carrier-pigeon")):
        result = run(*arguments)
        expect(result.returncode == 2 and "hawser" in result.stderr and not result.stdout, result)


def doctor():
    result = run("doctor")
    expect(result.returncode in (0, 1) and "This machine" in result.stdout and not complaints(result), result)
    expect("\x1b" not in result.stdout, result)  # No colours into a pipe.


def doctor_json():
    result = run("doctor", "--json")
    expect(result.returncode in (0, 1), result)
    report = json.loads(result.stdout)
    expect((result.returncode == 0) == (report["worst"] in ("good", "note")), result)
    names = [section["name"] for section in report["sections"]]
    expected = ["machine", "process", "tcp", "shm", "ucx", "rdma"]
    expect(names in (expected, [*expected, "tls"]), result)
    for section in report["sections"]:
        for finding in section["findings"]:
            expect(finding["id"].startswith(section["name"] + ".") and finding["text"], result)


def doctor_server(listen, *prefix):
    """Starts the other end of a doctor over two hosts. Returns the process and its address."""
    process = subprocess.Popen([*prefix, sys.argv[1], "doctor", "--serve", listen, "--serve-seconds", "600"],
                               stdout=subprocess.PIPE, text=True)
    first = process.stdout.readline()
    if not first.startswith("listening on "):
        process.kill()
        sys.exit(f"the server printed {first!r}")
    return process, first.split()[2]


def findings_of(result):
    """The findings of the section about the peer, by id and subject."""
    report = json.loads(result.stdout)
    expect([section["name"] for section in report["sections"]] == ["peer"], result)
    return {(finding["id"], finding["subject"]): finding for finding in report["sections"][0]["findings"]}


def doctor_peer():
    """Both ends of the doctor over two hosts, and what is said when there is no other end."""
    server, address = doctor_server("127.0.0.1:0")
    try:
        result = run("doctor", "--peer", address, "--json")
        found = findings_of(result)
        tcp = found[("peer.transport", "tcp")]["figures"]
        expect(tcp["ping_us_p50"] > 0 and tcp["sent_mbyte_per_s"] > 0 and tcp["received_mbyte_per_s"] > 0, result)
        expect(found[("peer.reach", "")]["severity"] == "good", result)
        expect(not complaints(result), result)
    finally:
        server.terminate()
        status = server.wait()
    if status != 0:
        sys.exit(f"the server ended with {status}")
    result = run("doctor", "--peer", address)
    expect(result.returncode == 1 and "nothing listens at port" in result.stdout, result)
    for wrong in (("--peer", "[::1"), ("--peer", address, "--serve"), ("--serve-seconds", "1")):
        result = run("doctor", *wrong)
        expect(result.returncode == 2 and result.stderr, result)


def doctor_namespaces():
    """Two hosts with different MTUs, as network namespaces. This part runs within the first one."""
    if len(sys.argv) == 3:
        command = ["unshare", "--net", sys.executable, "-B", __file__, *sys.argv[1:], "inside"]
        if not shutil.which("unshare") or not shutil.which("ip") or subprocess.run(command[:2] + ["true"]).returncode:
            print("network namespaces cannot be made here")
            sys.exit(77)
        sys.exit(subprocess.run(command).returncode)
    other = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; exec sleep 100"], stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        there = ["nsenter", "--target", str(other.pid), "--net"]
        steps = [f"ip link add here type veth peer name there netns {other.pid}", "ip addr add 10.77.0.1/24 dev here",
                 "ip link set here up", "ip link set lo up"]
        steps_there = ["ip addr add 10.77.0.2/24 dev there", "ip link set there mtu 1400 up", "ip link set lo up"]
        for step in [step.split() for step in steps] + [there + step.split() for step in steps_there]:
            if subprocess.run(step).returncode:
                print("no pair of interfaces can be made here")
                sys.exit(77)
        server, address = doctor_server("10.77.0.2:0", *there)
        try:
            result = run("doctor", "--peer", address, "--json")
            found = findings_of(result)
            mtu = found[("peer.mtu", "")]
            expect(mtu["severity"] == "warning" and "1500 bytes of here" in mtu["text"]
                   and "1400 bytes of there" in mtu["text"], result)
            expect(found[("peer.transport", "tcp")]["figures"]["received_mbyte_per_s"] > 0, result)
            expect(("peer.transport", "shm") not in found and result.returncode == 1, result)
        finally:
            server.terminate()
            server.wait()
    finally:
        other.terminate()
        other.wait()


def doctor_peer_rdma():
    """If there is a device, both ends of a doctor over two hosts use it."""
    folder = pathlib.Path("/sys/class/infiniband")
    if not folder.is_dir() or not any(folder.iterdir()):
        print("no RDMA device")
        sys.exit(77)
    server, address = doctor_server("127.0.0.1:0")
    try:
        result = run("doctor", "--peer", address, "--json")
        found = findings_of(result)
        used = found[("peer.transport", "rdma")]
        expect("round trip" in used["text"] and used["figures"]["ping_us_p50"] > 0, result)
        expect(any(name == "peer.gids" and "pairs of GIDs in one network" in finding["text"]
                   for (name, _), finding in found.items()), result)
    finally:
        server.terminate()
        server.wait()


def doctor_rdma():
    """If there is a device, the report names it and the self-test sends data."""
    folder = pathlib.Path("/sys/class/infiniband")
    devices = sorted(device.name for device in folder.iterdir()) if folder.is_dir() else []
    if not devices:
        print("no RDMA device")
        sys.exit(77)
    result = run("doctor", "--json", "--require", "rdma")
    section = next(section for section in json.loads(result.stdout)["sections"] if section["name"] == "rdma")
    expect(section["usable"], result)
    tested = [finding for finding in section["findings"] if finding["id"] == "rdma.self_test"]
    expect(tested and all(finding["subject"].split("/")[0] in devices for finding in tested), result)
    expect(not [finding for finding in section["findings"] if finding["severity"] == "problem"], result)
    print(run("doctor").stdout)


def lab():
    """Both studies on a simulated device, and their page."""
    with tempfile.TemporaryDirectory() as folder:
        ladder, study, page = (f"{folder}/{name}" for name in ("ladder.json", "study.json", "page.html"))
        simulated = ("--simulated", "--repetitions", "2")
        result = run("lab", "ladder", *simulated, "--count", "100", "--size", "4K", "--json", ladder,
                     "--csv", f"{folder}/ladder.csv")
        expect(result.returncode == 0 and "Simulated" in result.stdout and "requests reused" in result.stdout, result)
        expect(len(pathlib.Path(f"{folder}/ladder.csv").read_text().splitlines()) > 12, result)
        result = run("lab", "sendrecv", *simulated, "--count", "500", "--connections", "4", "--json", study)
        expect(result.returncode == 0 and "(h)" in result.stdout and "Root mean square" in result.stdout, result)
        again = run("lab", "sendrecv", *simulated, "--count", "500", "--connections", "4")
        expect(result.stdout == again.stdout, again)  # The same seed.
        result = run("lab", "report", ladder, study, "-o", page, "--svg", f"{folder}/figures")
        expect(result.returncode == 0, result)
        root = xml.etree.ElementTree.parse(page).getroot()
        text = pathlib.Path(page).read_text()
        expect("simulated" in text and "http-equiv" not in text and "src=" not in text, result)
        drawings = list(pathlib.Path(f"{folder}/figures").glob("*.svg"))
        expect(len(drawings) >= 12, result)
        expect(len([one for one in root.iter() if one.tag.endswith("}svg")]) == len(drawings), result)
        for drawing in drawings:
            xml.etree.ElementTree.parse(drawing)
        result = run("lab", "project", "--load", "block", "--draws", "1")
        expect(result.returncode == 0 and result.stdout.count("predicted |") == 10, result)
        result = run("lab", "report", f"{folder}/ladder.csv", "-o", page)
        expect(result.returncode == 1 and "ladder.csv" in result.stderr, result)


def lab_rdma():
    """On a device: a short ladder beside perftest where that is installed."""
    folder = pathlib.Path("/sys/class/infiniband")
    if not folder.is_dir() or not list(folder.iterdir()):
        print("no RDMA device")
        sys.exit(77)
    result = run("lab", "ladder", "--count", "50", "--repetitions", "2", "--steps", "1,8",
                 *(["--perftest"] if shutil.which("ib_write_bw") else []))
    expect(result.returncode == 0 and "Simulated" not in result.stdout, result)
    result = run("lab", "sendrecv", "--count", "50", "--repetitions", "1", "--experiments", "ab", "--size-max", "64")
    expect(result.returncode == 0 and "Root mean square" in result.stdout, result)


def demo_curl():
    """demo serve answers curl: JSON, protobuf bytes, routes, errors; and it ends on SIGTERM."""
    if not shutil.which("curl"):
        print("curl is not installed")
        sys.exit(77)
    with subprocess.Popen([sys.argv[1], "demo", "serve", "--threads", "2"], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()

            def curl(path, *arguments, data=None):
                result = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "30", *arguments,
                                         f"http://{address}{path}"], input=data, capture_output=True)
                result.stdout, result.stderr = (text.decode("latin-1") for text in (result.stdout, result.stderr))
                return result

            def expect_body(body, result):
                expect(result.returncode == 0 and result.stdout == body, result)

            echo = "/example.EchoService/Echo"
            expect_body("OK\n", curl("/health"))
            expect_body('{"message":"hi"}', curl(echo, "--data", '{"message": "hi"}', "-H", "Content-Type: application/json"))
            expect_body("{}", curl(echo, "--data", "{}", "-H", "Content-Type: application/json"))
            expect_body("\x0a\x02hi", curl(echo, "--data-binary", "\x0a\x02hi", "-H", "Content-Type: application/proto"))
            # Chunked, and long enough for curl to expect 100-continue.
            text = "x" * 2_000_000
            sent = json.dumps({"message": text}).encode()
            for fields in ((), ("-H", "Transfer-Encoding: chunked")):
                expect_body('{"message":"' + text + '"}',
                            curl(echo, "--data-binary", "@-", "-H", "Content-Type: application/json", *fields, data=sent))
            expect_body("404", curl("/nothing", "-o", "/dev/null", "-w", "%{http_code}"))
            expect_body("405", curl(echo, "-o", "/dev/null", "-w", "%{http_code}"))
            result = curl("/health", "--head")
            expect(result.returncode == 0 and "200 OK" in result.stdout and "Content-Length: 3" in result.stdout, result)
            # Two transfers over one connection.
            result = curl("/health", "-v", f"http://{address}/health")
            expect(result.stdout == "OK\nOK\n" and "Re-using existing connection" in result.stderr, result)
        finally:
            server.terminate()
    expect(server.returncode == 0, subprocess.CompletedProcess("demo serve", server.returncode, "", ""))


def demo_client():
    """demo client makes a call of each kind; a server that is not there gives status 3."""
    with demo_server() as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()
            result = run("demo", "client", address, "--timeout", "30")
        finally:
            server.terminate()
    if "this build does not have" in result.stderr:
        print("no protobuf in this build")
        sys.exit(77)
    expect(result.returncode == 0 and not complaints(result), result)
    lines = [line.split() for line in result.stdout.splitlines()]
    methods = {}
    for line in lines[1:]:
        methods.setdefault(line[0], []).append(line)
    expect(list(methods) == ["native", "grpc", "baidu_std", "http"], result)
    for protocol, number in (("native", 5), ("grpc", 5), ("baidu_std", 2), ("http", 3)):
        absent = f"{protocol} this build does not have the protocol" in " ".join(methods[protocol][0])
        expect(absent or len(methods[protocol]) == number, result)
    for answer in ("hello", "2 x rope", "2 items", "3 events", "rope is in stock", '{"message":"hello"}', "OK"):
        expect(any(line.endswith(answer) for line in result.stdout.splitlines()), result)
    with tempfile.TemporaryDirectory() as folder:
        result = run("demo", "client", f"unix:{folder}/nobody", "--timeout", "30")
    expect(result.returncode == 3 and result.stdout.count("unavailable") >= 2, result)


def calls_within_tls(address, certificate, folder):
    """The commands that call a server, with the options of TLS."""
    trust = ("--tls-ca", certificate)
    for protocol in ("native", "grpc", "http"):
        result = run("call", address, "example.EchoService/Echo", '{"message":"hello"}', "--protocol", protocol, *trust)
        absent = "this build" in result.stderr
        expect(absent or (result.returncode == 0 and json.loads(result.stdout) == {"message": "hello"}), result)
    for command in ("list", "health", "ping", "top"):
        further = {"ping": ("--count", "1"), "top": ("--once", "--interval", "0.01")}.get(command, ())
        result = run(command, address, *further, *trust)
        expect(result.returncode == 0 and not complaints(result), result)
    result = run("record", address, f"{folder}/recording", *trust)
    expect(result.returncode == 1 and "recorder" in result.stderr, result)
    for options, text in (((), "signed by itself"), (("--tls-host", "other.example", *trust), "other.example")):
        result = run("list", address, "--tls", *options)
        expect(result.returncode == 3 and text in result.stderr, result)
    expect(run("list", address, "--tls-insecure").returncode == 0, result)
    result = run("list", address, "--tls-insecure", *trust)
    expect(result.returncode == 2 and "--tls-ca" in result.stderr, result)


def demo_tls():
    """demo serve with a certificate that openssl makes, and doctor about it."""
    if not shutil.which("curl") or not shutil.which("openssl"):
        print("curl or openssl is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/server.pem", f"{folder}/server.key"
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                               "-days", "30", "-subj", "/CN=demo", "-addext", "subjectAltName=IP:127.0.0.1",
                               "-keyout", key, "-out", certificate], capture_output=True, text=True)
        expect(made.returncode == 0, made)
        result = run("doctor", "--json", "--no-self-test", "--tls-cert", certificate, "--tls-key", key)
        if "this build has no TLS" in result.stdout:
            print("this build has no TLS")
            sys.exit(77)
        section = next(one for one in json.loads(result.stdout)["sections"] if one["name"] == "tls")
        texts = " ".join(finding["text"] for finding in section["findings"])
        expect("CN=demo" in texts and "ends in 30 days" in texts and "signed by itself" in texts, result)
        serve = [sys.argv[1], "demo", "serve", "--tls-cert", certificate, "--tls-key", key]
        for policy, plain in (("required", "requires TLS"), ("allowed", "OK")):
            with subprocess.Popen([*serve, "--tls", policy], stdout=subprocess.PIPE, text=True) as server:
                try:
                    address = server.stdout.readline().rpartition(" ")[2].strip()
                    ask = ["curl", "--silent", "--show-error", "--max-time", "30", "--cacert", certificate]
                    result = subprocess.run([*ask, f"https://{address}/health"], capture_output=True, text=True)
                    expect(result.returncode == 0 and result.stdout == "OK\n", result)
                    result = subprocess.run([*ask, f"http://{address}/health"], capture_output=True, text=True)
                    expect(plain in result.stdout, result)
                    calls_within_tls(address, certificate, folder)
                finally:
                    server.terminate()
        result = run("demo", "serve", "--tls-cert", key, "--tls-key", key)
        expect(result.returncode == 1 and "has no certificate in PEM format" in result.stderr, result)


def demo_tls_token():
    """demo serve and doctor with a key in a token of SoftHSM, and with a wrong PIN."""
    module = "/usr/lib/softhsm/libsofthsm2.so"
    if not shutil.which("curl") or not shutil.which("openssl") or not shutil.which("softhsm2-util"):
        print("curl, openssl or softhsm2 is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key, pin = f"{folder}/server.pem", f"{folder}/server.key", f"{folder}/pin"
        os.mkdir(f"{folder}/tokens")
        with open(f"{folder}/softhsm2.conf", "w") as file:
            file.write(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
        os.environ["SOFTHSM2_CONF"] = f"{folder}/softhsm2.conf"
        with open(pin, "w") as file:
            file.write("31415926\n")
        for command in (("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                         "-days", "30", "-subj", "/CN=demo", "-addext", "subjectAltName=IP:127.0.0.1",
                         "-keyout", key, "-out", certificate),
                        ("softhsm2-util", "--init-token", "--free", "--label", "demo", "--so-pin", "27182818",
                         "--pin", "31415926"),
                        ("softhsm2-util", "--import", key, "--token", "demo", "--label", "server", "--id", "01",
                         "--pin", "31415926")):
            made = subprocess.run(command, capture_output=True, text=True)
            expect(made.returncode == 0, made)
        os.remove(key)
        uri = f"pkcs11:token=demo;object=server?module-path={module}"
        result = run("doctor", "--json", "--no-self-test", "--tls-cert", certificate, "--tls-key",
                     f"{uri}&pin-source={pin}")
        for absent in ("this build has no TLS", "this build of hawser::tls cannot use keys in tokens"):
            if absent in result.stdout:
                print(absent)
                sys.exit(77)

        def findings(key_uri):
            result = run("doctor", "--json", "--no-self-test", "--tls-cert", certificate, "--tls-key", key_uri)
            section = next(one for one in json.loads(result.stdout)["sections"] if one["name"] == "tls")
            return [(one["text"], one["remedy"]) for one in section["findings"] if "key pkcs11:" in one["text"]]

        expect(findings(f"{uri}&pin-source={pin}") == [], result)
        wrong = findings(f"{uri}&pin-value=11111111")
        expect(len(wrong) == 1 and "refuses the PIN: CKR_PIN_INCORRECT" in wrong[0][0] and "1111" not in str(wrong)
               and wrong[0][1] == "correct pin-value in the URI of the key", wrong)
        absent = findings(f"{uri.replace('=server', '=other')}&pin-source={pin}")
        expect(len(absent) == 1 and "'server'" in absent[0][0] and "correct object" in absent[0][1], absent)
        with demo_server("--tls-cert", certificate, "--tls-key", f"{uri}&pin-source={pin}") as server:
            try:
                address = server.stdout.readline().rpartition(" ")[2].strip()
                for version in ("1.2", "1.3"):
                    result = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "30", "--cacert",
                                             certificate, "--tls-max", version, f"https://{address}/health"],
                                            capture_output=True, text=True)
                    expect(result.returncode == 0 and result.stdout == "OK\n", result)
            finally:
                server.terminate()
        result = run("demo", "serve", "--tls-cert", certificate, "--tls-key", f"{uri}&pin-value=11111111")
        expect(result.returncode == 1 and "refuses the PIN: CKR_PIN_INCORRECT" in result.stderr
               and "1111" not in result.stderr, result)


def demo_server(*options):
    return subprocess.Popen([sys.argv[1], "demo", "serve", *options], stdout=subprocess.PIPE, text=True)


def fetched(address, path, **fields):
    request = urllib.request.Request(f"http://{address}{path}", headers=fields)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def demo_load_programs():
    """h2load over HTTP/2 and wrk over HTTP/1.1 get all answers, and another client is served beside them."""
    programs = [program for program in ("h2load", "wrk") if shutil.which(program)]
    if not programs:
        print("neither h2load nor wrk is installed (Debian packages nghttp2-client and wrk)")
        sys.exit(77)
    with demo_server("--threads", "2") as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()
            if shutil.which("nghttp"):
                page = subprocess.run(["nghttp", f"http://{address}/connections?format=json"], capture_output=True,
                                      text=True)
                expect(page.returncode == 0 and " streams open; " in page.stdout, page)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as body:
                body.write('{"message":"' + "x" * 100 + '"}')
                body.flush()
                # Streams in flight times connections, and more requests than one connection may have open at once.
                loads = {"h2load": ["h2load", "--requests=2000", "--clients=4", "--max-concurrent-streams=50",
                                    f"--data={body.name}", "--header=content-type: application/json",
                                    f"http://{address}/example.EchoService/Echo"],
                         "wrk": ["wrk", "--threads=1", "--connections=16", "--duration=1s", "--timeout=30s",
                                 f"http://{address}/health"]}
                for program in programs:
                    load = subprocess.Popen(loads[program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    expect_ok = fetched(address, "/health") == b"OK\n"
                    output = load.communicate()[0]
                    if program == "h2load":
                        answered = "2000 succeeded, 0 failed, 0 errored, 0 timeout" in output
                    else:
                        answered = " requests in " in output and "Non-2xx" not in output and "Socket errors" not in output
                    if load.returncode or not answered or not expect_ok:
                        sys.exit(f"{program} ended with {load.returncode}:\n{output}")
        finally:
            server.terminate()


def demo_metrics():
    """/metrics of a server that has been called passes promtool."""
    promtool = shutil.which("promtool")
    if not promtool:
        print("promtool is not installed (Debian package prometheus)")
        sys.exit(77)
    with demo_server() as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()
            data = urllib.request.Request(f"http://{address}/example.EchoService/Echo", data=b'{"message": "hi"}',
                                          headers={"Content-Type": "application/json"})
            urllib.request.urlopen(data, timeout=30).close()
            text = fetched(address, "/metrics")
            expect(b'hawser_server_method_calls_total{method="example.EchoService/Echo",code="ok"} 1\n' in text,
                   subprocess.CompletedProcess("metrics", 0, text, ""))
            result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
            expect(result.returncode == 0 and not result.stderr, result)
        finally:
            server.terminate()


def demo_log():
    """A line of the log in JSON, and as text."""
    for form in ("json", "text"):
        with subprocess.Popen([sys.argv[1], "demo", "serve", "--log-format", form], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                address = server.stdout.readline().rpartition(" ")[2].strip()
                token = server.stdout.readline().rpartition(" ")[2].strip()
                change = urllib.request.Request(f"http://{address}/log/level?level=info", data=b"",
                                                headers={"Hawser-Token": token})
                urllib.request.urlopen(change, timeout=60).close()
                line = next(line for line in server.stderr if "asked by" in line)
            finally:
                server.terminate()
        if form == "json":
            fields = json.loads(line)
            expect(set(fields) == {"time", "level", "component", "message"} and fields["component"] == "pages",
                   subprocess.CompletedProcess("log", 0, line, ""))
        else:
            expect("Z info [pages] " in line, subprocess.CompletedProcess("log", 0, line, ""))


def protobuf_fields(data):
    """The fields of a message with their numbers: integers, and bytes for texts and messages."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        value, at = varint(at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        yield key >> 3, value


def demo_profile():
    """The flame graph is XML, and the profile for pprof has the fields of profile.proto."""
    with demo_server() as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()
            busy = subprocess.Popen([sys.argv[1], "load", address, "demo::echo", '"hi"', "--concurrency", "8"],
                                    stdout=subprocess.DEVNULL)
            graph = xml.etree.ElementTree.fromstring(fetched(address, "/profile/cpu?seconds=1"))
            profile = fetched(address, "/profile/cpu?seconds=1&format=pprof")
        finally:
            busy.kill()
            busy.wait()
            server.terminate()
    expect(graph.tag.endswith("svg"), subprocess.CompletedProcess("svg", 0, graph.tag, ""))
    fields = list(protobuf_fields(profile))
    strings = [value.decode() for number, value in fields if number == 6]
    functions = {dict(protobuf_fields(value))[1] for number, value in fields if number == 5}
    locations = {dict(protobuf_fields(value))[1] for number, value in fields if number == 4}
    used = {value for number, sample in fields if number == 2 for field, value in protobuf_fields(sample) if field == 1}
    types = [strings[dict(protobuf_fields(value))[1]] for number, value in fields if number == 1]
    expect(types == ["samples", "cpu"] and strings[0] == "" and locations == functions and used <= locations,
           subprocess.CompletedProcess("pprof", 0, str(fields), ""))


def demo_prometheus():
    """A prometheus server scrapes a demo server, and answers a query about it."""
    prometheus = shutil.which("prometheus")
    if not prometheus:
        print("prometheus is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, demo_server() as server:
        scraper = None
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()
            pathlib.Path(folder, "config.yml").write_text(
                "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: hawser\n"
                f"  static_configs: [{{targets: ['{address}']}}]\n")
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            with open(f"{folder}/log", "w") as log:
                scraper = subprocess.Popen([prometheus, f"--config.file={folder}/config.yml",
                                            f"--storage.tsdb.path={folder}/data",
                                            f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
            end = time.monotonic() + 60
            values = []
            while not values and time.monotonic() < end and scraper.poll() is None:
                try:
                    answer = json.loads(fetched(f"127.0.0.1:{port}", "/api/v1/query?query=hawser_loop_ticks_total"))
                    values = answer["data"]["result"]
                except OSError:
                    pass
                time.sleep(0.1)
            log = pathlib.Path(folder, "log").read_text()
            if not values and "address already in use" in log:
                print("another program took the port")
                sys.exit(77)
            targets = fetched(f"127.0.0.1:{port}", "/api/v1/targets").decode() if values else ""
            expect(values and values[0]["metric"]["instance"] == address and '"health":"up"' in targets,
                   subprocess.CompletedProcess("prometheus", 0, targets, log))
        finally:
            server.terminate()
            if scraper:
                scraper.kill()
                scraper.wait()


def demo_cluster():
    """The script of `make demo` starts three servers and ends by itself."""
    script = pathlib.Path(__file__).parents[3] / "tools" / "demo.py"
    result = subprocess.run([sys.executable, "-B", script, sys.argv[1], "1"], capture_output=True, text=True)
    expect(result.returncode == 0 and result.stdout.count("http://127.0.0.1:") == 3 and not complaints(result), result)


if __name__ == "__main__":
    cases = (version, wrong_options, demo_client, demo_curl, demo_cluster, demo_tls, demo_tls_token,
             demo_metrics, demo_log, demo_profile, demo_prometheus, doctor, doctor_json, doctor_peer, doctor_namespaces,
             doctor_peer_rdma, doctor_rdma, demo_load_programs, lab, lab_rdma)
    {case.__name__: case for case in cases}[sys.argv[2]]()
