"""Memory of tensors by DLPack: objects without the buffer protocol, as those of libraries for machine learning."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import hawser
import shop
import test_memory


@pytest.fixture
def numpy() -> Any:
    return pytest.importorskip("numpy")


class Tensor:
    """Has the protocol alone."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array = array
        self.device = device
        self.taken = 0

    def __dlpack__(self, **options: Any) -> Any:
        self.taken += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


class EarlyTensor(Tensor):
    """Has the methods that the protocol had before it had versions."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class Parts(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class HandMade:
    """Six bytes behind two others, of the shape 3, 2. Counts the calls of its deleter."""

    def __init__(self, capsule: bytes = b"dltensor_versioned", shape: tuple[int, ...] = (3, 2), **fields: int) -> None:
        self.memory = ctypes.create_string_buffer(b"--abcdef", 8)
        self.deleted = 0
        self.capsule = capsule
        self._deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        given = {"major": 1, "device_type": 1, "bits": 8, "lanes": 1, "dimensions": len(shape), "code": 1}
        given |= {"data": ctypes.addressof(self.memory), **fields}
        self.parts = Parts(byte_offset=2, deleter=self._deleter, **given)
        if shape:
            self.parts.shape = self._shape

    def _delete(self, _: object) -> None:
        self.deleted += 1

    def __dlpack__(self, **options: Any) -> Any:
        make: Callable[..., Any] = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object  # type: ignore[attr-defined]
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]  # type: ignore[attr-defined]
        return make(ctypes.addressof(self.parts), self.capsule, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("kind", [Tensor, EarlyTensor])
def test_tensors_are_exposed_read_and_written(kind: type[Tensor], numpy: Any) -> None:
    async def main() -> None:
        weights = numpy.arange(1000, dtype="f4").reshape(10, 100)
        async with test_memory.owner(kind(weights), ["shm"], access="read_write") as (exposed, client):
            assert exposed.region.bytes == weights.nbytes
            copy = numpy.zeros_like(weights)
            await client.read(exposed.region, kind(copy))
            assert (copy == weights).all()
            await client.write(exposed.region, kind(numpy.full(5, -1, dtype="f4")), offset=40)
            assert weights[0, 9:16].tolist() == [9, -1, -1, -1, -1, -1, 15]
            batch = hawser.Batch(kind(copy), [0, 4], [16, 0], 4)
            await client.read(exposed.region, batch)
            assert copy[0, :3].tolist() == [4, 0, 2]

    test_memory.run(main())


def test_tensors_are_arguments_attachments_and_into(numpy: Any) -> None:
    async def main() -> None:
        served = shop.Shop()
        tensor, target = Tensor(numpy.arange(5000)), numpy.zeros(5000, dtype="i8")
        async with served.server, hawser.connect(served.server.address) as client:
            reply = await client.call_with_reply("shop::beside", "text", attachment=tensor)
            assert bytes(reply.attachment or b"") == tensor.array.tobytes()
            assert await client.call("shop::bytes", tensor) == tensor.array.tobytes()
            got = await client.call("shop::bytes", tensor, into=Tensor(target))
            assert (target == tensor.array).all() and len(got) == target.nbytes
            with pytest.raises(TypeError):
                await client.call("shop::add", tensor, 1)

    test_memory.run(main())


def test_the_memory_lives_as_long_as_it_is_exposed(numpy: Any) -> None:
    array = numpy.zeros(10)
    server = hawser.Server()
    for early, kind in enumerate((Tensor, EarlyTensor)):
        array = numpy.zeros(10 + early)
        alive = weakref.ref(array)
        exposed = server.expose(kind(array))
        del array
        gc.collect()
        assert alive() is not None
        exposed.revoke()
        gc.collect()
        assert alive() is None


def test_what_is_elsewhere_or_out_of_order_is_refused(numpy: Any) -> None:
    server = hawser.Server()
    device = Tensor(numpy.zeros(10), device=2)
    with pytest.raises(BufferError, match=r"of a device \(DLPack type 2\), not of the processor"):
        server.expose(device)
    assert device.taken == 0
    for shape in (numpy.zeros((3, 4)).T, numpy.zeros(10)[::2], numpy.zeros(10)[::-1]):
        with pytest.raises(BufferError, match="do not lie in C's order"):
            server.expose(Tensor(shape))
    server.expose(Tensor(numpy.zeros((1, 5, 1))[:, 1:])).revoke()  # No step is taken in a dimension of one element.
    with pytest.raises(hawser.Error):
        server.expose(Tensor(numpy.zeros((3, 0, 5))))


def test_each_field_of_a_tensor_is_checked() -> None:
    server = hawser.Server()
    tensor = HandMade()
    exposed = server.expose(tensor, access="read_write")
    assert exposed.region.bytes == 6
    assert tensor.deleted == 0
    exposed.revoke()
    gc.collect()
    assert tensor.deleted == 1
    large = 1 << 62
    for wrong, text in [
        (HandMade(device_type=2), "DLPack type 2"),
        (HandMade(major=2), "DLPack 2, not of version 1"),
        (HandMade(flags=2), "made a copy"),
        (HandMade(bits=4), "not whole bytes"),
        (HandMade(lanes=0), "not whole bytes"),
        (HandMade(dimensions=-1), "negative number of dimensions"),
        (HandMade(shape=(), dimensions=2), "has no shape"),
        (HandMade(data=0), "has no memory"),
        (HandMade(shape=(2, -1)), "shape of the tensor"),
        (HandMade(shape=(large, 4)), "shape of the tensor"),
        (HandMade(shape=(large, 4), bits=64), "shape of the tensor"),
        (HandMade(capsule=b"used_dltensor_versioned"), "has no tensor, or one that was taken before"),
    ]:
        with pytest.raises(BufferError, match=text):
            server.expose(wrong)
        assert wrong.deleted == 0  # Its capsule still owns it.
    with pytest.raises(TypeError):
        server.expose(object())


def test_what_is_read_only_is_not_written() -> None:
    server = hawser.Server()
    for access in ("write", "read_write"):
        constant = HandMade(flags=1)
        with pytest.raises(BufferError, match="not writable"):
            server.expose(constant, access=access)
        gc.collect()
        assert constant.deleted == 1
    constant = HandMade(flags=1)
    server.expose(constant).revoke()
    gc.collect()
    assert constant.deleted == 1
