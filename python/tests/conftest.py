from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest


def peer_program() -> str:
    """The program that is built from peer.cpp."""
    path = os.environ.get("HAWSER_PYTHON_PEER", "")
    if not path:
        pytest.skip("HAWSER_PYTHON_PEER does not name the program `peer`: `make python` builds it")
    return path


@pytest.fixture
def peer() -> str:
    return peer_program()


@pytest.fixture
def cpp_server() -> Iterator[str]:
    """The address of a server in C++."""
    with subprocess.Popen([peer_program(), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()
