#!/usr/bin/env python3
"""Starts three demo servers that call each other, with a little load over HTTP, and prints the addresses of their pages.
Ends by itself, or on Ctrl-C.

demo.py PROGRAM [SECONDS]   PROGRAM: the hawser command; SECONDS: 600 by default
"""

import http.client
import json
import random
import socket
import subprocess
import sys
import time

SERVERS = 3
PORTS = range(20_000, 32_000)
SECONDS_DEFAULT = 600
PAGES = ("/", "/status", "/connections", "/calls", "/loops", "/metrics")


def free_ports(count):
    """Ports below those that the kernel selects, so that no other program gets one before the servers do."""
    ports = []
    for port in random.sample(PORTS, len(PORTS)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    sys.exit(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} of 127.0.0.1 are free")


def post(connection, path, value):
    connection.request("POST", path, json.dumps(value), {"Content-Type": "application/json"})
    connection.getresponse().read()


def main():
    program = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS_DEFAULT
    addresses = [f"127.0.0.1:{port}" for port in free_ports(SERVERS)]
    servers = []
    try:
        for own in addresses:
            load = [part for other in addresses if other != own for part in ("--load", other)]
            servers.append(subprocess.Popen([program, "demo", "serve", "--listen", own, "--threads", "2", *load],
                                            stdout=subprocess.PIPE, text=True))
        for server in servers:
            if not server.stdout.readline().startswith("listening"):
                sys.exit("a server did not start")
        print(f"Three servers that call each other, for {seconds:.0f} s or until Ctrl-C:")
        for address in addresses:
            print("  " + "  ".join(f"http://{address}{path}" for path in PAGES[:1]))
        print("On each: " + " ".join(PAGES[1:]) + " and more; curl shows text, browsers show HTML.", flush=True)
        connections = [http.client.HTTPConnection(address, timeout=10) for address in addresses]
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            for connection in connections:
                number += 1
                post(connection, "/example.EchoService/Echo", {"message": "x" * (number % 50)})
                # Each tenth order is refused, so that the pages have errors to show.
                post(connection, "/demo.ShopService/Order", {"item": "rope", "count": number % 10})
            time.sleep(0.02)
    except KeyboardInterrupt:
        pass
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()


if __name__ == "__main__":
    main()
