from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run with skipped tests has the exit status HAWSER_PYTHON_SKIP_CODE, unless a test has failed: ctest counts it
    as skipped."""
    code = os.environ.get("HAWSER_PYTHON_SKIP_CODE")
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if code and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = int(code)


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


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """The folder of the modules for harbour.proto."""
    from hawser import protoc

    pytest.importorskip("google.protobuf")
    try:
        protoc.find_protoc()
    except protoc.Unusable as reason:
        pytest.skip(str(reason))
    tests = pathlib.Path(__file__).parent
    folder = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "hawser.protoc", "-I", str(tests), "--out", str(folder), str(tests / "harbour.proto")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{folder}/harbour_hawser.py\n"), done.stderr
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
