"""A parameter server: workers read the weights where they lie, without a handler, and stream their gradients.

python parameter_server.py runs a server and two workers, which find the weights of a linear function.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import numpy

import hawser

SIZE = 64
STEPS = 200


class ParameterServer:
    def __init__(self) -> None:
        self.weights = numpy.zeros(SIZE)
        self.server = hawser.Server()
        self.exposed = self.server.expose(self.weights)
        self.server.method("parameters::where")(self.where)
        self.server.method("parameters::train")(self.train)

    async def where(self) -> hawser.Region:
        return self.exposed.region

    async def train(self, gradients: AsyncIterator[memoryview]) -> AsyncIterator[int]:
        """Applies each gradient, and answers it with the number of its step."""
        step = 0
        async for gradient in gradients:
            self.weights -= 0.1 * numpy.frombuffer(gradient)
            step += 1
            yield step


async def work(address: str, seed: int) -> None:
    random = numpy.random.default_rng(seed)
    async with hawser.connect(address) as client:
        region = await client.call("parameters::where")
        weights = numpy.empty(SIZE)
        async with client.open("parameters::train") as training:
            for _ in range(STEPS):
                await client.read(region, weights)
                inputs = random.normal(size=(32, SIZE))
                errors = inputs @ weights - inputs @ numpy.arange(SIZE)
                await training.write(inputs.T @ errors / len(inputs))
                await training.__anext__()


async def main() -> None:
    parameters = ParameterServer()
    async with parameters.server as server:
        workers = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, server.address, str(seed)) for seed in range(2)
        ]
        for worker in workers:
            assert await worker.wait() == 0
    distance = float(numpy.abs(parameters.weights - numpy.arange(SIZE)).max())
    print(f"largest error of a weight after {STEPS} steps of each worker: {distance:.1e}")


if __name__ == "__main__":
    asyncio.run(main() if len(sys.argv) == 1 else work(sys.argv[1], int(sys.argv[2])))
