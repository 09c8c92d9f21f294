"""WebSocket by others: Python's websockets, as a server that echoes (`serve`, prints its port) and as a
client that checks the echo (`talk PORT`, exits 0 if all of it was right)."""

import asyncio
import sys

import websockets

SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20]


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def serve():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.Future()


async def expect(socket, message):
    got = await socket.recv()
    assert got == message, (len(got), len(message))


async def talk(port):
    for compression in (None, "deflate"):
        url = f"ws://127.0.0.1:{port}/chat"
        async with websockets.connect(url, max_size=None, compression=compression) as socket:
            for size in SIZES:
                await socket.send(bytes(at % 251 for at in range(size)))
                await expect(socket, bytes(at % 251 for at in range(size)))
                await socket.send("ä" * size)
                await expect(socket, "ä" * size)
            await socket.send(["in ", "several ", "frames"])
            await expect(socket, "in several frames")
            await (await socket.ping())
            many = [str(number) for number in range(1000)]
            for message in many:
                await socket.send(message)
            for message in many:
                await expect(socket, message)


if sys.argv[1] == "serve":
    asyncio.run(serve())
else:
    asyncio.run(asyncio.wait_for(talk(int(sys.argv[2])), 60))
