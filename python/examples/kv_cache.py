"""Moves pages of a key-value cache from one process to another, without a handler for the data.

python kv_cache.py runs both: the process that has filled the cache exposes it, and the other one reads the pages of one
sequence into pages of its own, in one batch.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import numpy

import hawser

PAGES = 20_000
PAGE_BYTES = 4096


@dataclass
class Sequence:
    """The pages of a sequence in the cache of another process."""

    region: hawser.Region
    pages: list[int]


async def prefill() -> None:
    cache = numpy.empty((PAGES, PAGE_BYTES), dtype="u1")
    cache[:] = numpy.arange(PAGES, dtype="u4").reshape(-1, 1) % 251
    server = hawser.Server()
    exposed = server.expose(cache)

    @server.method("cache::find")
    async def find(name: str) -> Sequence:
        pages = numpy.random.default_rng(len(name)).permutation(PAGES)[:15_000]
        return Sequence(exposed.region, pages.tolist())

    async with server:
        decoder = await asyncio.create_subprocess_exec(sys.executable, __file__, server.address)
        assert await decoder.wait() == 0


async def decode(address: str) -> None:
    cache = numpy.zeros((PAGES, PAGE_BYTES), dtype="u1")
    async with hawser.connect(address) as client:
        sequence = await client.call("cache::find", "session-7")
        theirs = numpy.array(sequence.pages)
        own = numpy.arange(len(theirs))  # The first pages of this cache are free.
        batch = hawser.Batch(cache, own * PAGE_BYTES, theirs * PAGE_BYTES, PAGE_BYTES)
        with await client.register(cache):
            await client.read(sequence.region, batch)
    assert (cache[own] == (theirs % 251).reshape(-1, 1)).all()
    print(f"read {len(batch)} pages, {batch.nbytes} bytes")


if __name__ == "__main__":
    asyncio.run(prefill() if len(sys.argv) == 1 else decode(sys.argv[1]))
