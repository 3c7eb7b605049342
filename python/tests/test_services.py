"""Services of .proto files: the generated classes, over Hawser's own protocol and over gRPC."""

from __future__ import annotations

import asyncio
import importlib
import os
import pathlib
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest

import hawser
from hawser import blocking, protoc, services

pytest.importorskip("google.protobuf")


@pytest.fixture
def pb2(generated: pathlib.Path) -> Any:
    return importlib.import_module("harbour_pb2")


@pytest.fixture
def classes(generated: pathlib.Path) -> Any:
    return importlib.import_module("harbour_hawser")


def office(pb2: Any, classes: Any) -> Any:
    """The service in Python: Unknown and Silent are not overridden."""

    class Office(classes.OfficeService):  # type: ignore[misc]
        async def Arrive(self, context: hawser.Context, request: Any) -> Any:
            if not request.name:
                raise hawser.Error("a ship without a name", application_code=5)
            for key, value in context.metadata:
                context.add_metadata(key, value)
            reply = pb2.Ship()
            reply.CopyFrom(request)
            reply.berth += 1
            return reply

        async def CountShips(self, context: hawser.Context, requests: hawser.Reader[Any]) -> Any:
            return pb2.Count(ships=len([ship async for ship in requests]))

        async def List(self, context: hawser.Context, request: Any) -> AsyncIterator[Any]:
            for berth in range(request.ships):
                yield pb2.Ship(berth=berth)

        async def Exchange(self, context: hawser.Context, requests: hawser.Reader[Any]) -> AsyncIterator[Any]:
            async for ship in requests:
                yield ship

        async def import_(self, context: hawser.Context, request: Any) -> Any:
            return pb2.Ship.Hold(cargo=b"rope")

    return Office()


async def call_all(client: hawser.Client, pb2: Any, classes: Any) -> None:
    """Calls each method of a server that has the service."""
    stub = classes.OfficeClient(client)
    ship = pb2.Ship(name="Otter", berth=6, hold=pb2.Ship.Hold(cargo=os.urandom(100_000)))
    moored = await stub.Arrive(ship, timeout=100, metadata={"key": "value"})
    assert (moored.name, moored.berth, moored.hold.cargo) == ("Otter", 7, ship.hold.cargo)
    reply = await client.call_with_reply(classes._Office.Arrive, ship, metadata={"key": "value"})
    assert reply.value == moored and ("key", "value") in reply.metadata
    with pytest.raises(hawser.Error) as caught:
        await stub.Arrive(pb2.Ship())
    assert (caught.value.application_code, caught.value.text) == (5, "a ship without a name")
    with pytest.raises(hawser.Error) as caught:
        await stub.Unknown(ship)
    assert caught.value.code == hawser.ErrorCode.UNKNOWN_METHOD
    async with stub.CountShips() as counting:
        for _ in range(100):
            await counting.write(pb2.Ship())  # Items without a byte.
        assert (await counting.result()).ships == 100
    async with stub.List(pb2.Count(ships=50)) as listing:
        assert [one.berth async for one in listing] == list(range(50))
    async with stub.List(pb2.Count()) as listing:
        assert [one async for one in listing] == []
    async with stub.Exchange() as exchange:
        for berth in (3, 0, 5):
            await exchange.write(pb2.Ship(berth=berth))
        exchange.end()
        assert [one.berth async for one in exchange] == [3, 0, 5]
    async with stub.Silent(pb2.Count()) as silent:
        with pytest.raises(hawser.Error) as caught:
            await silent.result()
    assert caught.value.code == hawser.ErrorCode.UNKNOWN_METHOD
    empty = importlib.import_module("google.protobuf.empty_pb2").Empty()
    assert (await stub.import_(empty)).cargo == b"rope"
    with pytest.raises(TypeError, match="argument 1 of harbour.Office/Arrive: expected harbour.Ship, not Count"):
        await stub.Arrive(pb2.Count())


@pytest.mark.parametrize("grpc", [False, True])
def test_client_and_server(pb2: Any, classes: Any, grpc: bool) -> None:
    async def main() -> None:
        server = hawser.Server(grpc=grpc)
        server.add_service(office(pb2, classes))
        async with server, hawser.connect(server.address, grpc=grpc) as client:
            await call_all(client, pb2, classes)

    asyncio.run(asyncio.wait_for(main(), 500))


@pytest.mark.parametrize("grpc", [False, True])
def test_a_cpp_server(pb2: Any, classes: Any, grpc: bool) -> None:
    program = os.environ.get("HAWSER_PYTHON_SERVICES_PEER", "")
    if not program:
        pytest.skip("HAWSER_PYTHON_SERVICES_PEER does not name the program of services_peer.cpp")

    async def main(address: str) -> None:
        async with hawser.connect(address, grpc=grpc) as client:
            await call_all(client, pb2, classes)

    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        asyncio.run(asyncio.wait_for(main(server.stdout.readline().strip()), 500))
        server.stdin.close()


def test_grpcio_client(pb2: Any, classes: Any) -> None:
    grpcio: Any = pytest.importorskip("grpc")

    async def main() -> None:
        server = hawser.Server(grpc=True)
        server.add_service(office(pb2, classes))
        async with server, grpcio.aio.insecure_channel(server.address) as channel:

            def stub(kind: str, name: str, reply: Any) -> Any:
                return getattr(channel, kind)(
                    f"/harbour.Office/{name}", lambda message: message.SerializeToString(), reply.FromString
                )

            async def ships(*berths: int) -> AsyncIterator[Any]:
                for berth in berths:
                    yield pb2.Ship(berth=berth)

            arrive = stub("unary_unary", "Arrive", pb2.Ship)
            assert (await arrive(pb2.Ship(name="Otter", berth=1))).berth == 2
            with pytest.raises(grpcio.RpcError) as caught:
                await arrive(pb2.Ship())
            assert caught.value.code() == grpcio.StatusCode.NOT_FOUND
            with pytest.raises(grpcio.RpcError) as caught:
                await stub("unary_unary", "Unknown", pb2.Ship)(pb2.Ship())
            assert caught.value.code() == grpcio.StatusCode.UNIMPLEMENTED
            counted = await stub("stream_unary", "CountShips", pb2.Count)(ships(1, 2, 3))
            assert counted.ships == 3
            listed = stub("unary_stream", "List", pb2.Ship)(pb2.Count(ships=4))
            assert [one.berth async for one in listed] == [0, 1, 2, 3]
            exchanged = stub("stream_stream", "Exchange", pb2.Ship)(ships(7, 8))
            assert [one.berth async for one in exchanged] == [7, 8]

    asyncio.run(asyncio.wait_for(main(), 500))


def test_grpcio_server(pb2: Any, classes: Any) -> None:
    grpcio: Any = pytest.importorskip("grpc")
    empty = importlib.import_module("google.protobuf.empty_pb2").Empty

    async def arrive(request: Any, context: Any) -> Any:
        if not request.name:
            await context.abort(grpcio.StatusCode.NOT_FOUND, "a ship without a name")
        context.set_trailing_metadata([one for one in context.invocation_metadata() if one[0] == "key"])
        return pb2.Ship(name=request.name, berth=request.berth + 1, hold=request.hold)

    async def count(requests: Any, context: Any) -> Any:
        return pb2.Count(ships=len([one async for one in requests]))

    async def listed(request: Any, context: Any) -> AsyncIterator[Any]:
        for berth in range(request.ships):
            yield pb2.Ship(berth=berth)

    async def exchange(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for ship in requests:
            yield ship

    async def imported(request: Any, context: Any) -> Any:
        return pb2.Ship.Hold(cargo=b"rope")

    async def main() -> None:
        server = grpcio.aio.server()
        methods = {
            "Arrive": grpcio.unary_unary_rpc_method_handler(arrive, pb2.Ship.FromString, pb2.Ship.SerializeToString),
            "CountShips": grpcio.stream_unary_rpc_method_handler(count, pb2.Ship.FromString, pb2.Count.SerializeToString),
            "List": grpcio.unary_stream_rpc_method_handler(listed, pb2.Count.FromString, pb2.Ship.SerializeToString),
            "Exchange": grpcio.stream_stream_rpc_method_handler(exchange, pb2.Ship.FromString, pb2.Ship.SerializeToString),
            "import": grpcio.unary_unary_rpc_method_handler(imported, empty.FromString, pb2.Ship.Hold.SerializeToString),
        }
        server.add_generic_rpc_handlers((grpcio.method_handlers_generic_handler("harbour.Office", methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with hawser.connect(f"127.0.0.1:{port}", grpc=True) as client:
                await call_all(client, pb2, classes)
        finally:
            await server.stop(None)

    asyncio.run(asyncio.wait_for(main(), 500))


def test_blocking_client(pb2: Any, classes: Any) -> None:
    async def main() -> None:
        server = hawser.Server(grpc=True)
        server.add_service(office(pb2, classes))
        async with server:
            for grpc in (False, True):
                await asyncio.get_running_loop().run_in_executor(None, use, server.address, grpc)

    def use(address: str, grpc: bool) -> None:
        with blocking.connect(address, grpc=grpc) as client:
            stub = classes.OfficeBlockingClient(client)
            assert stub.Arrive(pb2.Ship(name="Otter", berth=2), timeout=100).berth == 3
            with stub.List(pb2.Count(ships=3)) as listing:
                assert [one.berth for one in listing] == [0, 1, 2]
            with stub.CountShips() as counting:
                counting.write(pb2.Ship())
                assert counting.result().ships == 1

    asyncio.run(asyncio.wait_for(main(), 500))


def test_messages_beside_other_values(pb2: Any, classes: Any) -> None:
    server = hawser.Server()

    async def moor(berth: int, ships: list[Any]) -> Any:
        return {ship.name: ship for ship in ships if ship.berth == berth}

    moor.__annotations__.update({"ships": list[pb2.Ship], "return": dict[str, pb2.Ship]})
    server.method(moor)
    declared: hawser.Remote[Any] = hawser.declare("moor")(moor)
    server.add_service(office(pb2, classes))

    async def main() -> None:
        async with server, hawser.connect(server.address) as client:
            ships = [pb2.Ship(name="Otter", berth=1), pb2.Ship(name="Heron", berth=2)]
            assert await client.call(declared, 2, ships) == {"Heron": ships[1]}
            # Without the classes, messages are bytes.
            assert await client.call("moor", 2, ships) == {"Heron": ships[1].SerializeToString()}
            name = "harbour.Office/Arrive"
            reply = pb2.Ship(name="Otter", berth=2).SerializeToString()
            assert await client.call(name, ships[0]) == reply
            assert await client.call(name, ships[0].SerializeToString()) == reply
            with pytest.raises(TypeError, match="expected harbour.Ship, not int"):
                await client.call(name, 7)
            with pytest.raises(hawser.Error, match="not a complete message of the declared type") as caught:
                await client.call(name, b"\xff")
            assert caught.value.code == hawser.ErrorCode.PROTOCOL_ERROR
            with pytest.raises(hawser.Error, match="not a complete message"):
                await client.call("moor", 1, [b"\xff"])

    asyncio.run(asyncio.wait_for(main(), 500))


def test_the_command_hawser_calls_with_json(pb2: Any, classes: Any) -> None:
    command = os.environ.get("HAWSER_COMMAND", "")
    if not command:
        pytest.skip("HAWSER_COMMAND does not name the program `hawser`")

    async def main() -> None:
        server = hawser.Server()
        server.add_service(office(pb2, classes))
        async with server:
            words = ("call", server.address, "harbour.Office/Arrive", '{"name": "Otter", "berth": 2}')
            process = await asyncio.create_subprocess_exec(command, *words, stdout=subprocess.PIPE)
            output, _ = await process.communicate()
            assert (process.returncode, output.decode()) == (0, '{"name":"Otter","berth":3}\n')

    asyncio.run(asyncio.wait_for(main(), 500))


def test_names_need_a_description() -> None:
    async def main() -> None:
        async with hawser.Server(grpc=True) as server, hawser.connect(server.address, grpc=True) as client:
            with pytest.raises(TypeError, match="a server of gRPC does not describe its methods"):
                await client.call("harbour.Office/Arrive")

    asyncio.run(asyncio.wait_for(main(), 500))


def test_grpc_has_no_other_transport() -> None:
    wrongs: list[dict[str, Any]] = [{"rdma": True}, {"require": "shm"}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="gRPC needs a byte stream: omit rdma and require"):
            hawser.connect("127.0.0.1:1", grpc=True, **wrong)
    hawser.connect("127.0.0.1:1", grpc=True, require="stream")


def test_wrong_services_are_refused(classes: Any) -> None:
    class Plain(classes.OfficeService):  # type: ignore[misc]
        def Arrive(self, context: hawser.Context, request: Any) -> Any:
            return request

    class Returned(classes.OfficeService):  # type: ignore[misc]
        async def List(self, context: hawser.Context, request: Any) -> Any:
            return [request]

    server = hawser.Server()
    with pytest.raises(TypeError, match="Plain.Arrive is not a coroutine function"):
        server.add_service(Plain())
    with pytest.raises(TypeError, match="Returned.List is not a generator: send the stream by `yield`"):
        hawser.Server().add_service(Returned())
    wrongs: list[Any] = [classes.OfficeService, object()]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="is not a service: give an object of a class"):
            hawser.Server().add_service(wrong)
    server = hawser.Server()
    server.add_service(classes.OfficeService())
    with pytest.raises(ValueError, match="has a method harbour.Office/Arrive already"):
        server.add_service(classes.OfficeService())
    assert services.Service.hawser_methods == {}


def test_names_that_look_like_those_of_generated_code(tmp_path: pathlib.Path, generated: pathlib.Path) -> None:
    text = 'syntax = "proto3"; message A {} service services { rpc M(A) returns (A); rpc hawser(A) returns (A); } service Empty {}'
    (tmp_path / "_private.proto").write_text(text, encoding="utf-8")
    assert protoc.main(["-I", str(tmp_path), "--out", str(generated), str(tmp_path / "_private.proto")]) == 0
    module = importlib.import_module("_private_hawser")
    server = hawser.Server()
    server.add_service(module.servicesService())
    server.add_service(module.EmptyService())


def test_the_generator_says_what_is_wrong(tmp_path: pathlib.Path, generated: pathlib.Path, capfd: Any) -> None:
    def run(text: str, file: str = "wrong.proto") -> str:
        (tmp_path / file).write_text(f'syntax = "proto3"; {text}', encoding="utf-8")
        status = protoc.main(["-I", str(tmp_path), "--out", str(tmp_path), str(tmp_path / file)])
        output = capfd.readouterr()
        # The gRPC library of earlier tests may print that it has seen the fork of protoc.
        said = "".join(line for line in output.err.splitlines(True) if "fork_posix.cc" not in line)
        assert status == (1 if said else 0)
        return said + str(output.out)

    assert run("message A {}") == ""  # Without services there is no module.
    assert (tmp_path / "wrong_pb2.py").exists() and not (tmp_path / "wrong_hawser.py").exists()
    assert "protoc failed with status 1" in run("message A { B b = 1; }")
    keyword = run("message None {} service S { rpc M(None) returns (None); }")
    assert keyword.startswith("hawser.protoc: None: None is a keyword of Python: rename the message")
    twice = run("message A {} service S { rpc if(A) returns (A); rpc if_(A) returns (A); }")
    assert twice == "hawser.protoc: S has two methods that are called if_ in Python: rename one\n"
    assert run("message A { message __B {} } service S { rpc M(A) returns (A.__B); }") == (
        "hawser.protoc: A.__B: __B is a private name in the classes of Python: rename the message, or its file or folder\n"
    )
    for method in ("__init__", "hawser_methods", "_hawser_client", "wrong__pb2"):
        needed = run(f"message A {{}} service S {{ rpc {method}(A) returns (A); }}")
        assert needed == f"hawser.protoc: S: the generated classes need the name {method} themselves: rename the method\n"
    same = run("message A {} service Foo { rpc M(A) returns (A); } service FooBlocking { rpc M(A) returns (A); }")
    assert same == "hawser.protoc: wrong.proto: the services Foo and FooBlocking both have a class FooBlockingClient: rename one\n"
    assert run("message A {} service S { rpc M(A) returns (A); }", "1st.proto") == (
        "hawser.protoc: 1st.proto: 1st_pb2 is not a name in Python: rename the file or its folder\n"
    )
    assert protoc.main(["--protoc", str(tmp_path / "absent"), "wrong.proto"]) == 1
    assert "absent" in capfd.readouterr().err
