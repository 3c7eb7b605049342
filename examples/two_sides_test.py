#!/usr/bin/env python3
"""Runs the two sides of an example: two_sides_test.py CLIENT LAST_LINE SERVER...

The address follows as the last argument of both. The client must end with LAST_LINE.
"""

import os
import subprocess
import sys
import time

LIMIT_S = 60


def main():
    client_program, last_line, *server_program = sys.argv[1:]
    address = f"unix:@hawser-guide-{os.getpid()}"
    server = subprocess.Popen([*server_program, address])
    try:
        end = time.monotonic() + LIMIT_S
        while True:
            client = subprocess.run([client_program, address], capture_output=True, text=True, timeout=LIMIT_S)
            if client.returncode == 0:
                break
            if server.poll() is not None or time.monotonic() > end:
                print(client.stdout, client.stderr)
                return 1
            time.sleep(0.05)  # The server does not listen yet.
        print(client.stdout, end="")
        return 0 if client.stdout.splitlines()[-1:] == [last_line] else 1
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
