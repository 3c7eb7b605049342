"""The programs of python/examples."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("numpy")
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def output_of(name: str) -> str:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name)], check=True, stdout=subprocess.PIPE, text=True, timeout=300
    ).stdout


def test_the_workers_of_the_parameter_server_find_the_weights() -> None:
    error = float(output_of("parameter_server.py").rsplit(" ", 1)[1])
    assert error < 1e-3


def test_the_pages_of_a_cache_arrive() -> None:
    assert output_of("kv_cache.py") == "read 15000 pages, 61440000 bytes\n"
