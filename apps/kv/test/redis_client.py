#!/usr/bin/env python3
"""Uses the store with the redis package of Python: redis_client.py PORT. Exits 77 if the package is missing."""
import sys
import threading
import time

try:
    import redis
except ImportError as error:
    print(f"the redis package is missing: {error}")
    sys.exit(77)

PATIENCE = 60  # Seconds. Nothing is expected to take nearly as long.


def expect_equal(given, expected):
    if given != expected:
        raise AssertionError(f"{given!r} instead of {expected!r}")


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def expect_refused(text, action):
    try:
        result = action()
    except redis.ResponseError as error:
        expect(text in str(error), f"the error {error} does not contain {text!r}")
        return
    raise AssertionError(f"an error was expected, and the result is {result!r}")


def strings(client):
    binary = bytes(range(256)) * 300
    expect_equal(client.set("a", binary), True)
    expect_equal(client.get("a"), binary)
    expect_equal(client.strlen("a"), len(binary))
    expect_equal(client.getrange("a", 1, 3), b"\x01\x02\x03")
    expect_equal(client.set("a", "old"), True)
    expect_equal(client.set("a", "new", nx=True), None)
    expect_equal(client.set("a", "new", xx=True, get=True), b"old")
    expect_equal(client.setrange("a", 1, "xx"), 3)
    expect_equal(client.append("a", "!"), 4)
    expect_equal(client.getdel("a"), b"nxx!")
    expect_equal(client.get("a"), None)
    expect_equal(client.setnx("a", 1), True)
    expect_equal(client.setnx("a", 2), False)
    expect_equal(client.type("a"), b"string")
    expect_equal(client.delete("a", "none"), 1)
    expect_equal(client.mset({f"key{i}": i for i in range(100)}), True)
    expect_equal(client.mget([f"key{i}" for i in range(100)] + ["none"]), [b"%d" % i for i in range(100)] + [None])
    expect_equal(client.exists("key1", "key2", "none"), 2)
    expect_equal(client.unlink(*[f"key{i}" for i in range(100)]), 100)


def numbers(client):
    expect_equal([client.incr("n"), client.incrby("n", 41), client.decr("n", 2)], [1, 42, 40])
    client.set("text", "x")
    expect_refused("not an integer", lambda: client.incr("text"))
    client.set("most", 2**63 - 1)
    expect_refused("overflow", lambda: client.incr("most"))


def expiry(client):
    client.set("a", 1, ex=1000)
    expect(0 < client.ttl("a") <= 1000, "TTL is outside of its range")
    expect(0 < client.pttl("a") <= 1000_000, "PTTL is outside of its range")
    expect_equal(client.persist("a"), True)
    expect_equal(client.ttl("a"), -1)
    expect_equal(client.pexpire("a", 1), True)
    end = time.monotonic() + PATIENCE
    while client.exists("a"):
        expect(time.monotonic() < end, "an entry does not expire")
        time.sleep(0.001)
    expect_equal(client.ttl("a"), -2)


def keys(client):
    names = {b"scan:%d" % i for i in range(1000)}
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.set(name, 1)
    expect_equal(pipe.execute(), [True] * len(names))
    expect_equal(set(client.scan_iter("scan:*", count=50)), names)
    expect_equal(set(client.keys("scan:*")), names)
    expect_equal(client.dbsize(), len(set(client.keys())))
    expect_equal(client.flushall(), True)
    expect_equal(client.dbsize(), 0)


def pipelines(client):
    pipe = client.pipeline(transaction=False)
    for i in range(5000):
        pipe.set(f"p{i % 100}", i).get(f"p{i % 100}")
    replies = pipe.execute()
    expect_equal(replies[1::2], [b"%d" % i for i in range(5000)])
    # An error stands in its place, and the others go on.
    pipe.set("text", "x").incr("text").get("text")
    replies = pipe.execute(raise_on_error=False)
    expect_equal([replies[0], replies[2]], [True, b"x"])
    expect(isinstance(replies[1], redis.ResponseError), f"{replies[1]!r} is no error")


def transactions(client):
    pipe = client.pipeline()
    for i in range(500):
        pipe.set(f"t{i}", i).expire(f"t{i}", 1000)
    expect_equal(pipe.execute(), [True] * 1000)
    pipe.set("a", 1).lpush("list", 1)
    expect_refused("unknown command", pipe.execute)
    expect_equal(client.exists("a"), 0)
    # Each of 100 increments by reading and writing is kept.
    client.set("n", 0)

    def work():
        own = redis.Redis(connection_pool=client.connection_pool)
        for _ in range(25):
            own.transaction(lambda pipe: (lambda n: (pipe.multi(), pipe.set("n", n + 1)))(int(pipe.get("n"))), "n")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect_equal(client.get("n"), b"100")
    expect_equal(client.rename("n", "m"), True)
    expect_equal(client.msetnx({"m": 1, "o": 2}), False)
    expect(len(client.client_list()) > 0, "CLIENT LIST is empty")
    expect(client.info()["connected_clients"] > 0, "INFO has no clients")


def connections(client):
    expect_equal(client.ping(), True)
    expect_equal(client.echo("hello"), b"hello")
    expect_equal(client.client_setname("worker"), True)
    expect(client.info("server")["redis_version"].startswith("7."), "INFO names another version")
    expect("maxmemory" in client.config_get("maxmemory"), "CONFIG GET maxmemory is empty")
    expect_refused("unknown command", lambda: client.lpush("list", 1))
    expect_refused("unknown command", lambda: client.execute_command("NOSUCH", "argument"))
    # The client connects again by itself.
    client.connection_pool.disconnect()
    expect_equal(client.ping(), True)


def caches(client):
    try:
        from redis.cache import CacheConfig
    except ImportError:
        print("this version of the package has no cache")
        return
    port = client.connection_pool.connection_kwargs["port"]
    cached = redis.Redis(port=port, protocol=3, cache_config=CacheConfig())
    for i in range(50):
        client.set(f"c{i}", -1)
        expect_equal(cached.get(f"c{i}"), b"-1")

    def work():
        for i in range(2000):
            client.set(f"c{i * 7 % 50}", i)

    writer = threading.Thread(target=work)
    writer.start()
    while writer.is_alive():
        for i in range(50):
            cached.get(f"c{i}")
    end = time.monotonic() + PATIENCE
    while any(cached.get(f"c{i}") != client.get(f"c{i}") for i in range(50)):
        expect(time.monotonic() < end, "the cache is stale")
    client.flushall()
    while cached.get("c1") is not None:
        expect(time.monotonic() < end, "the cache is stale after FLUSHALL")
    cached.close()


def threads(client):
    failures = []

    def work():
        try:
            for _ in range(300):
                client.incr("shared")
        except Exception as error:  # Reported by the main thread.
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect_equal(failures, [])
    expect_equal(client.get("shared"), b"2400")


def main():
    print(f"redis {redis.__version__}")
    client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]), socket_timeout=PATIENCE,
                         socket_connect_timeout=PATIENCE)
    for part in (strings, numbers, expiry, keys, pipelines, transactions, connections, caches, threads):
        client.flushall()
        part(client)


if __name__ == "__main__":
    main()
