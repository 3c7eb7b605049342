// Redis clients of Java against hawser-kv: RedisClients.java CASE PORT.
//   clients: Jedis and Lettuce, with RESP2 and RESP3, and with their caches.
//   restart: writes until the standard input ends, while the store is started again.
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.SetParams;

public class RedisClients {
  static final long LIMIT_MS = 120_000; // Detects hangs only.

  static void equal(Object given, Object expected) {
    if (!expected.equals(given)) throw new AssertionError(given + " instead of " + expected);
  }

  static void soon(Supplier<String> given, String expected) throws InterruptedException {
    final long end = System.currentTimeMillis() + LIMIT_MS;
    while (!expected.equals(given.get())) {
      if (System.currentTimeMillis() > end) throw new AssertionError("still " + given.get() + " instead of " + expected);
      Thread.sleep(1);
    }
  }

  // ---- Jedis ----

  static RedisClient jedis(int port, RedisProtocol protocol, boolean cached) {
    final var builder = RedisClient.builder().hostAndPort("127.0.0.1", port)
        .clientConfig(DefaultJedisClientConfig.builder().protocol(protocol).build());
    if (cached) builder.cacheConfig(CacheConfig.builder().maxSize(100).build());
    return builder.build();
  }

  static void withJedis(int port, RedisProtocol protocol) {
    try (var client = jedis(port, protocol, false)) {
      client.flushAll();
      equal(client.mset("a", "1", "b", "2"), "OK");
      equal(client.mget("a", "b"), List.of("1", "2"));
      equal(client.set("a", "3", SetParams.setParams().xx().ex(100)), "OK");
      try (var transaction = client.multi()) {
        transaction.incr("a");
        transaction.get("a");
        transaction.ttl("a");
        equal(transaction.exec(), List.of(4L, "4", 100L));
      }
      try (var transaction = client.transaction(false)) {
        transaction.watch("a");
        client.incr("a");
        transaction.multi();
        transaction.set("a", "lost");
        equal(transaction.exec() == null, true);
      }
      equal(client.get("a"), "5");
      try (var pipeline = client.pipelined()) {
        for (int i = 0; i < 1000; ++i) pipeline.set("k" + i, "v" + i);
        equal(pipeline.syncAndReturnAll().size(), 1000);
      }
      equal(client.scanIteration(100, "k*").collect(new ArrayList<>()).size(), 1000);
    }
  }

  static void jedisCache(int port) throws InterruptedException {
    try (var reader = jedis(port, RedisProtocol.RESP3, true); var writer = jedis(port, RedisProtocol.RESP3, false)) {
      for (int i = 0; i < 200; ++i) {
        writer.set("c", "" + i);
        soon(() -> reader.get("c"), "" + i);
        equal(reader.get("c"), "" + i); // From the cache.
      }
      if (reader.getCache().getStats().getHitCount() == 0) throw new AssertionError("the cache of Jedis was not used");
    }
  }

  // ---- Lettuce ----

  static io.lettuce.core.RedisClient lettuce(int port, ProtocolVersion protocol) {
    final var client = io.lettuce.core.RedisClient.create(RedisURI.create("127.0.0.1", port));
    client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
    return client;
  }

  static void withLettuce(int port, ProtocolVersion protocol) throws Exception {
    final var client = lettuce(port, protocol);
    try (var connection = client.connect(); var other = client.connect()) {
      final var commands = connection.sync();
      commands.flushall();
      equal(commands.mset(Map.of("a", "1", "b", "2")), "OK");
      equal(commands.mget("a", "b").get(1).getValue(), "2");
      equal(commands.set("a", "3", SetArgs.Builder.xx().ex(100)), "OK");
      commands.multi();
      commands.incr("a");
      commands.get("a");
      equal(commands.exec().stream().toList(), List.of(4L, "4"));
      commands.watch("a");
      other.sync().incr("a");
      commands.multi();
      commands.set("a", "lost");
      equal(commands.exec().wasDiscarded(), true);
      equal(commands.get("a"), "5");
      final var futures = new ArrayList<io.lettuce.core.RedisFuture<String>>();
      for (int i = 0; i < 1000; ++i) futures.add(connection.async().set("k" + i, "v" + i));
      for (final var future : futures) equal(future.get(), "OK");
      equal((int) ScanIterator.scan(commands, ScanArgs.Builder.matches("k*").limit(100)).stream().count(), 1000);
    } finally {
      client.shutdown();
    }
  }

  static void lettuceCache(int port) throws Exception {
    final var client = lettuce(port, ProtocolVersion.RESP3);
    final var kept = new ConcurrentHashMap<String, String>();
    try (StatefulRedisConnection<String, String> reader = client.connect(); var writer = client.connect()) {
      final var cache = ClientSideCaching.enable(CacheAccessor.forMap(kept), reader, TrackingArgs.Builder.enabled());
      for (int i = 0; i < 200; ++i) {
        writer.sync().set("c", "" + i);
        soon(() -> cache.get("c"), "" + i);
      }
      equal(kept.keySet().contains("c"), true);
    } finally {
      client.shutdown();
    }
  }

  // ---- Restarts ----

  interface Store {
    String set(String key, String value);
    String get(String key);
  }

  static void write(String key, Store store, AtomicBoolean over) throws InterruptedException {
    for (int i = 0; !over.get(); ++i) {
      String got = null;
      try {
        store.set(key, "" + i);
        got = store.get(key);
      } catch (RuntimeException error) {
        Thread.sleep(10);
      }
      // The store keeps no data when it is started again.
      if (got != null) equal(got, "" + i);
    }
    final long end = System.currentTimeMillis() + LIMIT_MS;
    while (true) {
      try {
        store.set(key, "end");
        equal(store.get(key), "end");
        return;
      } catch (RuntimeException error) { // Connections of a pool that have ended since their last use.
        if (System.currentTimeMillis() > end) throw error;
      }
    }
  }

  static void restart(int port) throws Exception {
    final var over = new AtomicBoolean();
    final var failures = new ConcurrentHashMap<String, Throwable>();
    final var jedis = jedis(port, RedisProtocol.RESP2, false);
    final var client = lettuce(port, ProtocolVersion.RESP3);
    final var commands = client.connect().sync();
    final var stores = new HashMap<String, Store>();
    stores.put("jedis", new Store() {
      public String set(String key, String value) { return jedis.set(key, value); }
      public String get(String key) { return jedis.get(key); }
    });
    stores.put("lettuce", new Store() {
      public String set(String key, String value) { return commands.set(key, value); }
      public String get(String key) { return commands.get(key); }
    });
    final var threads = new ArrayList<Thread>();
    stores.forEach((key, store) -> threads.add(new Thread(() -> {
      try {
        write(key, store, over);
      } catch (Throwable failure) {
        failures.put(key, failure);
      }
    })));
    threads.forEach(Thread::start);
    System.out.println("begun");
    System.in.readAllBytes();
    over.set(true);
    for (final var thread : threads) thread.join();
    for (final var failure : failures.values()) throw new AssertionError(failure);
  }

  public static void main(String[] words) throws Exception {
    final int port = Integer.parseInt(words[1]);
    if (words[0].equals("clients")) {
      for (final var protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) withJedis(port, protocol);
      for (final var protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) withLettuce(port, protocol);
      jedisCache(port);
      lettuceCache(port);
    } else {
      restart(port);
    }
    System.out.println("Java " + Runtime.version() + " " + words[0] + " passed");
    System.exit(0);
  }
}
