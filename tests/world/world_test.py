#!/usr/bin/env python3
"""Runs programs of others against the server of tests/world: world_test.py SERVER CASE...

Each meets it at full speed, with slow readers, and while it is stopped and started again, with the default options of
both, except those that server.cpp and haproxy() name. Cases: grpcio, requests, httpx, redis (packages of the Python
that runs this script; redis meets hawser-kv), curl, nghttp, nginx, haproxy, go (tests/go_tools/world), node (http2 and
fetch of Node.js), node_packages (undici, @grpc/grpc-js; they lie in node_modules of the current folder), node_redis
(redis, ioredis and connect-redis against hawser-kv), grpc_java and java_redis (grpc-java; Jedis and Lettuce against
hawser-kv; their packages lie in lib of the current folder), tonic and redis_rs (redis-rs against hawser-kv;
target/debug/hawser-world of the current folder), xds (go-control-plane with grpc-go and Hawser's client of names;
hawser-world-xds of the current folder)."""

import concurrent.futures
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from harness import SECONDS_MAX, Server, check, make_certificate, soon  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
GO = [sys.executable, "-B", str(HERE.parent / "go_tools" / "tool.py"), "world"]
NODE = ["node", str(HERE / "node_client.mjs")]
JAVA = ["java", "-cp", "lib/*"]
RUST = ["target/debug/hawser-world"]
PROTO = str(HERE.parent / "grpc_interop" / "interop.proto")
SKIPPED = 77


def run(*words, **options):
    """Prints what the program prints. Returns its standard output."""
    options = {"timeout": SECONDS_MAX, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    done = subprocess.run([str(word) for word in words], **options)
    if done.returncode == SKIPPED:
        print(done.stdout)
        sys.exit(SKIPPED)
    check(done.returncode == 0, *words, "ended with", done.returncode, done.stdout)
    return done.stdout


def show(*words, **options):
    print(run(*words, **options).strip(), flush=True)


def begin(*words):
    """Starts a program that makes calls until its standard input ends, and waits for its first."""
    client = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    while True:
        line = client.stdout.readline()
        check(line, *words, "has ended")
        if line == "begun\n":
            return client


def end(client):
    output, _ = client.communicate(timeout=SECONDS_MAX)
    check(client.returncode == 0, *client.args, "ended with", client.returncode, output)
    print(output.strip(), flush=True)


def while_restarted(*words):
    """Runs a program of `begin`, and starts the server again meanwhile."""
    with Server(PROGRAM) as server:
        client = begin(*[str(word).replace("ADDRESS", server.address) for word in words])
        for _ in range(2):
            time.sleep(0.3)
            server.stop()
            time.sleep(0.1)
            server.start()
        time.sleep(0.3)
        end(client)


# ---- Clients ----

def grpcio(_):
    show(sys.executable, "-B", HERE / "grpcio_client.py", PROGRAM)


def requests(_):
    show(sys.executable, "-B", HERE / "http_clients.py", "requests", PROGRAM)


def httpx(_):
    show(sys.executable, "-B", HERE / "http_clients.py", "httpx", PROGRAM)


class Store:
    """A running hawser-kv."""

    def __init__(self, threads, port=0):
        store = pathlib.Path(PROGRAM).parent.parent / "kv" / "hawser-kv"
        words = [store, "serve", "--listen", f"127.0.0.1:{port}", "--memory", "64M", "--threads", threads]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        check("serving at 127.0.0.1:" in line, "hawser-kv says", repr(line))
        self.port = line.split("127.0.0.1:")[1].split()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        check(self.process.wait(timeout=SECONDS_MAX) == 0, "hawser-kv ended with", self.process.returncode)


def redis(_):
    for threads in (1, 3):
        with Store(threads) as store:
            show(sys.executable, "-B", HERE.parent.parent / "apps" / "kv" / "test" / "redis_client.py", store.port)


def with_stores(*words, address="PORT"):
    """Runs a Redis client with one and with several shards, and while the store is started again. PORT is replaced."""
    for threads in (1, 3):
        with Store(threads) as store:
            show(*words, "clients", address.replace("PORT", store.port))
    with Store(2) as store:
        client = begin(*words, "restart", address.replace("PORT", store.port))
    for _ in range(3):
        with Store(2, store.port):
            time.sleep(0.3)
    with Store(2, store.port):
        end(client)


def node_redis(_):
    with_stores("node", HERE / "redis_clients.mjs")


def java_redis(_):
    with_stores(*JAVA, HERE / "java" / "RedisClients.java")


def redis_rs(_):
    print(run("cargo", "--version").strip())
    with_stores(*RUST, address="127.0.0.1:PORT")


def grpc_java(_):
    client = [*JAVA, HERE / "java" / "GrpcClient.java"]
    with Server(PROGRAM) as server:
        show(*client, "grpc", server.address)
    while_restarted(*client, "restart", "ADDRESS")


def tonic(_):
    with Server(PROGRAM) as server:
        show(*RUST, "grpc", server.address)
    while_restarted(*RUST, "grpc_restart", "ADDRESS")


def go(folder):
    with Server(PROGRAM) as server:
        show(*GO, "grpc", server.address)
    with Server(PROGRAM) as server:
        show(*GO, "http", f"http://{server.address}")
    tls = make_certificate(folder)
    with Server(PROGRAM, *tls) as server:
        show(*GO, "https", f"https://localhost:{server.port}", tls[0])
    while_restarted(*GO, "grpc_restart", "ADDRESS")
    while_restarted(*GO, "http_restart", "http://ADDRESS")


def xds(_):
    show("./hawser-world-xds", pathlib.Path(PROGRAM).parent / "hawser_test_world_xds", timeout=10 * SECONDS_MAX)


def node(_):
    for case in ("http2", "fetch"):
        with Server(PROGRAM) as server:
            show(*NODE, case, server.address)
    while_restarted(*NODE, "http2_restart", "ADDRESS")


def node_packages(_):
    for case in ("undici", "grpc"):
        with Server(PROGRAM) as server:
            show(*NODE, case, server.address, PROTO)
    while_restarted(*NODE, "grpc_restart", "ADDRESS", PROTO)


def curl_base(*more):
    # --noproxy: the environment may name a proxy.
    return ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", str(SECONDS_MAX), *more]


def curl(folder):
    print(run("curl", "--version").split("\n")[0])
    tls = make_certificate(folder)
    big = pathlib.Path(folder) / "big"
    big.write_bytes(b"u" * 3_000_000)
    with Server(PROGRAM) as plain, Server(PROGRAM, *tls) as secure:
        secure_base = f"https://localhost:{secure.port}"
        for base, version, options in ((f"http://{plain.address}", "1.1", ["--http1.1"]),
                                       (f"http://{plain.address}", "2", ["--http2-prior-knowledge"]),
                                       (secure_base, "1.1", ["--http1.1", "--cacert", tls[0]]),
                                       (secure_base, "2", ["--http2", "--cacert", tls[0]])):
            call = curl_base(*options)
            got = run(*call, "--write-out", "%{http_version} %{size_download}", "--output", "/dev/null",
                      f"{base}/bytes?n=20000000")
            check(got == f"{version} 20000000", base, "gave", got)
            check(run(*call, "--data-binary", f"@{big}", f"{base}/upload") == "3000000", base, "upload")
            slow = run(*call, "--limit-rate", "2M", "--write-out", "%{size_download}", "--output", "/dev/null",
                       f"{base}/bytes?n=3000000")
            check(slow == "3000000", base, "a slow reader gave", slow)
            if "--http2-prior-knowledge" in options:
                continue  # curl 7.88 fails with parallel requests of this kind, also with nginx.
            many = [word for _ in range(200) for word in ("--output", "/dev/null", f"{base}/bytes?n=30000")]
            got = run(*call, "--no-progress-meter", "--parallel", "--parallel-max", "50", "--write-out", "%{http_code}\n", *many)
            check(got.split() == ["200"] * 200, base, "200 requests gave", got)
        plain.stop()
        plain.start()
        run(*curl_base(), f"http://{plain.address}/bytes?n=10")


def nghttp(folder):
    print(run("h2load", "--version").strip())
    tls = make_certificate(folder)
    with Server(PROGRAM) as plain, Server(PROGRAM, *tls) as secure:
        for base in (f"http://{plain.address}", f"https://localhost:{secure.port}"):
            for words, expected in ((["-n", 20000, "-c", 10, "-m", 100, f"{base}/bytes?n=100"], 20000),
                                    (["-n", 300, "-c", 2, "-m", 100, f"{base}/bytes?n=1000000"], 300),
                                    # Small windows: 2^10 for a stream, 2^12 for the connection.
                                    (["-n", 100, "-c", 2, "-m", 50, "-w", 10, "-W", 12, f"{base}/bytes?n=100000"], 100),
                                    (["-n", 2000, "-c", 10, "--h1", "-m", 10, f"{base}/bytes?n=10000"], 2000)):
                got = run("h2load", *words)
                check(f"{expected} succeeded, 0 failed, 0 errored" in got, *words, got)
        got = run("nghttp", "-vn", *[f"http://{plain.address}/bytes?n={1000000 + i}" for i in range(30)])
        check(got.count(":status: 200") == 30, "nghttp:", got[-2000:])


# ---- Proxies ----

class Proxy:
    """A proxy in front of the server, from its start until its sockets exist, and to its end."""

    def __init__(self, words, sockets):
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def listens():
            check(self.process.poll() is None, words[0], "has ended:", self.process.poll())
            for path in sockets:
                try:
                    with socket.socket(socket.AF_UNIX) as one:
                        one.connect(path)
                except OSError:
                    return False
            return True

        soon(listens, words[0], "listens")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=SECONDS_MAX)


def through(path, grpc_path, servers):
    """HTTP through the socket `path`, gRPC through `grpc_path`. `servers` are behind the proxy."""
    for name in ("plain", "secure"):
        call = curl_base("--unix-socket", path)
        base = f"http://localhost/{name}"
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda _, c=call, b=base: run(*c, "--output", "/dev/null", "--write-out", "%{size_download}",
                                                              f"{b}/bytes?n=2000000"), range(32)))
            check(got == ["2000000"] * 32, base, "gave", got)
            # Slow clients share the proxy with others.
            slow = [pool.submit(run, *call, "--limit-rate", "3M", "--output", "/dev/null", "--write-out", "%{size_download}",
                                f"{base}/bytes?n=10000000") for _ in range(4)]
            times = []
            for _ in range(20):
                begin = time.monotonic()
                run(*call, f"{base}/bytes?n=10")
                times.append(time.monotonic() - begin)
            check([one.result() for one in slow] == ["10000000"] * 4, base, "slow clients")
            print(f"{name}: beside slow clients at most {max(times) * 1e3:.0f} ms (with the start of curl)")
        got = run(*call, "--data-binary", "@-", f"{base}/upload", input="u" * 3_000_000)
        check(got == "3000000", base, "upload", got)
        got = run(*call, "--header", "X-Forwarded-For: 203.0.113.9", f"{base}/field?name=x-forwarded-for")
        print(name, "X-Forwarded-For:", got.split("\n")[:-1])
        lines = run(*call, "--no-buffer", f"{base}/parts?n=20&ms=10").split()
        check(lines == [str(i) for i in range(20)], base, "a stream gave", lines)
    if grpc_path:
        show(sys.executable, "-B", HERE / "grpcio_client.py", "--at", f"unix:{grpc_path}", "full_speed", "deadlines",
             "cancels", "with_aio")
    servers[0].stop()
    servers[0].start()

    def back():
        done = subprocess.run([*curl_base("--unix-socket", path), "http://localhost/plain/bytes?n=10"], capture_output=True)
        return done.returncode == 0 and len(done.stdout) == 10

    soon(back, "the proxy reaches the server that has been started again")


def has_grpcio():
    return subprocess.run([sys.executable, "-c", "import grpc"], capture_output=True).returncode == 0


def nginx(folder):
    print(subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip())
    tls = make_certificate(folder)
    with Server(PROGRAM) as plain, Server(PROGRAM, *tls) as secure:
        temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        forward = "proxy_http_version 1.1; proxy_set_header Connection ''; " \
                  "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
        config = f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
{"user root;" if os.getuid() == 0 else ""}
events {{ worker_connections 4096; }}
http {{
  access_log off; {temporary} client_max_body_size 0;
  upstream plain {{ server {plain.address} max_fails=0; keepalive 16; }}
  upstream grpc {{ server {plain.address} max_fails=0; keepalive 16; }}
  upstream secure {{ server 127.0.0.1:{secure.port} max_fails=0; keepalive 16; }}
  server {{
    listen unix:{folder}/http.sock;
    {forward}
    location /plain/ {{ proxy_pass http://plain/; }}
    location /secure/ {{ proxy_pass https://secure/; proxy_ssl_verify on; proxy_ssl_name localhost;
      proxy_ssl_trusted_certificate {tls[0]}; }}
  }}
  server {{
    listen unix:{folder}/grpc.sock http2;
    http2_max_concurrent_streams 1000; grpc_read_timeout 300s;
    location / {{ grpc_pass grpc://grpc; }}
  }}
}}
"""
        path = pathlib.Path(folder) / "nginx.conf"
        path.write_text(config)
        with Proxy(["nginx", "-e", f"{folder}/nginx.log", "-c", str(path)], [f"{folder}/http.sock", f"{folder}/grpc.sock"]):
            through(f"{folder}/http.sock", f"{folder}/grpc.sock" if has_grpcio() else None, (plain, secure))


def haproxy(folder):
    line = run("haproxy", "-v").split("\n")[0]
    print(line)
    # Older versions end connections to servers of gRPC: docs/protocols/grpc.md.
    version = tuple(int(number) for number in re.search(r"version (\d+)\.(\d+)", line).groups())
    reuse = "max-reuse 0" if version < (3, 0) else ""
    tls = make_certificate(folder)
    with Server(PROGRAM) as plain, Server(PROGRAM, *tls) as secure:
        config = f"""
global
  maxconn 2000
defaults
  mode http
  timeout connect 10s
  timeout client 300s
  timeout server 300s
  retries 3
frontend http
  bind unix@{folder}/http.sock
  option forwardfor
  use_backend plain if {{ path_beg /plain/ }}
  default_backend secure
frontend grpc
  bind unix@{folder}/grpc.sock proto h2
  default_backend grpc
backend plain
  option httpchk
  http-check send meth GET uri /health ver HTTP/1.1 hdr Host localhost
  http-request replace-path /plain(/.*) \\1
  server one {plain.address} check inter 200ms fastinter 100ms rise 1
backend secure
  http-request replace-path /secure(/.*) \\1
  server one 127.0.0.1:{secure.port} ssl verify required ca-file {tls[0]} sni str(localhost) verifyhost localhost alpn h2,http/1.1
backend grpc
  server one {plain.address} proto h2 {reuse}
"""
        path = pathlib.Path(folder) / "haproxy.cfg"
        path.write_text(config)
        with Proxy(["haproxy", "-f", str(path)], [f"{folder}/http.sock", f"{folder}/grpc.sock"]):
            through(f"{folder}/http.sock", f"{folder}/grpc.sock" if has_grpcio() else None, (plain, secure))


CASES = {one.__name__: one for one in (grpcio, requests, httpx, redis, node_redis, java_redis, redis_rs, go, node, node_packages,
                                       grpc_java, tonic, curl, nghttp, nginx, haproxy, xds)}


def main():
    if len(sys.argv) < 3 or any(case not in CASES for case in sys.argv[2:]):
        sys.exit(__doc__)
    for case in sys.argv[2:]:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            CASES[case](folder)
        print(f"{case}: passed in {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
