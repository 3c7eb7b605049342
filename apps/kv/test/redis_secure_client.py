#!/usr/bin/env python3
"""Uses the store with the redis package of Python over TLS and with a password.

redis_secure_client.py PORT PASSWORD_FILE CA CERTIFICATE KEY. Exits 77 if the package is missing.
"""
import sys

try:
    import redis
except ImportError as error:
    print(f"the redis package is missing: {error}")
    sys.exit(77)

PATIENCE = 60  # Seconds. Nothing is expected to take nearly as long.


def expect_error(kinds, client, text=""):
    try:
        result = client.get("a")
    except kinds as error:
        assert text in str(error), f"the error {error} does not contain {text!r}"
        return
    raise AssertionError(f"an error was expected, and the result is {result!r}")


def main():
    port, password_file, ca, certificate, key = sys.argv[1:]
    with open(password_file, encoding="utf-8") as file:
        password = file.read().rstrip("\n")

    def connect(**other):
        given = {"host": "localhost", "port": int(port), "socket_timeout": PATIENCE, "ssl": True, "ssl_ca_certs": ca,
                 "ssl_certfile": certificate, "ssl_keyfile": key, "password": password}
        given.update(other)
        return redis.Redis(**given)

    client = connect()
    assert client.set("a", b"\x00" * 100_000) is True
    assert client.get("a") == b"\x00" * 100_000
    pipe = client.pipeline(transaction=False)
    for i in range(1000):
        pipe.incr("n")
    assert pipe.execute() == list(range(1, 1001))
    assert connect(username="default").get("n") == b"1000"
    expect_error(redis.exceptions.AuthenticationError, connect(password=None))
    expect_error(redis.exceptions.RedisError, connect(password="wrong"), "WRONGPASS")
    expect_error(redis.exceptions.RedisError, connect(username="other"), "WRONGPASS")
    # Without a certificate, with another issuer, and in plain text.
    expect_error(redis.exceptions.ConnectionError, connect(ssl_certfile=None, ssl_keyfile=None))
    expect_error(redis.exceptions.ConnectionError, connect(ssl_ca_certs=certificate))
    expect_error(redis.exceptions.RedisError, connect(ssl=False))


if __name__ == "__main__":
    main()
