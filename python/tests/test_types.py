"""The annotations of the package, as mypy sees them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
FOLDER = pathlib.Path(__file__).parent


def mypy(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(FOLDER)}
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *words],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env=environment,
        check=False,
    )


def test_the_package_and_its_tests_have_no_type_errors() -> None:
    checked = mypy("-p", "hawser")
    assert checked.returncode == 0, checked.stdout
    checked = mypy(*(str(file) for file in sorted(FOLDER.glob("*.py"))))
    assert checked.returncode == 0, checked.stdout


def test_the_result_of_a_declared_method_is_known(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "user.py"
    source.write_text(
        "import hawser, shop\n"
        "async def use(client: hawser.Client) -> None:\n"
        "    order = await client.call(shop.order, shop.ORDER)\n"
        "    order.idd\n"
        "    reveal_type(await client.call_with_reply(shop.sum_of, shop.Node(1, [])))\n"
        "server = hawser.Server()\n"
        "@server.method\n"
        "async def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "reveal_type(add)\n",
        encoding="utf-8",
    )
    checked = mypy(str(source))
    assert '"Order" has no attribute "idd"' in checked.stdout
    assert "Reply[int]" in checked.stdout.replace("hawser._client.", "").replace("builtins.", "")
    assert "def (a: int, b: int) -> typing.Coroutine[Any, Any, int]" in checked.stdout.replace("builtins.", "")


def test_generated_classes_have_types(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "user.py"
    source.write_text(
        "import hawser, harbour_hawser, harbour_pb2\n"
        "from typing import AsyncIterator\n"
        "async def use(client: hawser.Client) -> None:\n"
        "    office = harbour_hawser.OfficeClient(client)\n"
        "    reveal_type(await office.Arrive(harbour_pb2.Ship()))\n"
        "    reveal_type(office.CountShips())\n"
        "    reveal_type(office.List(harbour_pb2.Count()))\n"
        "    await office.Arrive(harbour_pb2.Count())\n"
        "class Office(harbour_hawser.OfficeService):\n"
        "    async def Arrive(self, context: hawser.Context, request: harbour_pb2.Ship) -> harbour_pb2.Ship:\n"
        "        return request\n"
        "    async def List(self, context: hawser.Context, request: harbour_pb2.Count) -> AsyncIterator[harbour_pb2.Ship]:\n"
        "        yield harbour_pb2.Ship()\n"
        "    async def CountShips(self, context: hawser.Context, requests: hawser.Reader[int]) -> harbour_pb2.Count:\n"
        "        return harbour_pb2.Count()\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(source)]
    environment = {**os.environ, "MYPYPATH": str(generated)}
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    if "types-protobuf" in checked.stdout:
        pytest.skip("types-protobuf is not installed")
    # The stubs of protoc are not strict.
    lines = [line.replace("hawser._streams.", "") for line in checked.stdout.splitlines() if "harbour_pb2.pyi:" not in line]
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in lines if "Revealed type is" in line]
    assert revealed == [
        "harbour_pb2.Ship",
        "StreamingCall[None, harbour_pb2.Count]",
        "StreamingCall[harbour_pb2.Ship, None]",
    ], checked.stdout
    errors = [line for line in lines if ": error:" in line]
    assert len(errors) == 2, checked.stdout
    assert 'Argument 1 to "Arrive" of "OfficeClient" has incompatible type "Count"; expected "Ship"' in errors[0]
    assert 'Argument 2 of "CountShips" is incompatible with supertype' in errors[1]


def test_the_stub_has_what_the_module_has() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "hawser._hawser", "--ignore-missing-stub", "--ignore-positional-only"],
        capture_output=True,
        text=True,
        check=False,
    )
    missing = [line for line in checked.stdout.splitlines() if "is not present at runtime" in line]
    assert missing == [] and "checked 1 module" in checked.stdout or checked.returncode == 0, checked.stdout
