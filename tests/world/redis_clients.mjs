// Redis clients of Node.js against hawser-kv: redis_clients.mjs CASE PORT.
//   clients: the packages redis, with its cache, ioredis and connect-redis.
//   restart: writes until the standard input ends, while the store is started again.
import assert from 'node:assert';
import { createRequire } from 'node:module';

const [name, port_text] = process.argv.slice(2);
const port = Number(port_text);
const require = createRequire(process.cwd() + '/');
const { createClient, createClientPool } = require('redis');
const Redis = require('ioredis');
const limit = 120_000; // Milliseconds. Detects hangs only.
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
setTimeout(() => assert.fail(`no end within ${limit} ms`), limit).unref();

async function connect(options = {}) {
  const client = createClient({ socket: { port, host: '127.0.0.1', reconnectStrategy: 20 }, ...options });
  client.on('error', () => {});
  return client.connect();
}

async function strings(client) {
  await client.flushAll();
  await client.mSet({ a: '1', b: '2' });
  assert.deepEqual(await client.mGet(['a', 'b', 'none']), ['1', '2', null]);
  assert.deepEqual(await client.multi().incr('a').get('a').expire('a', 100).exec(), [2, '2', 1]);
  await Promise.all(Array.from({ length: 1000 }, (_, i) => client.set(`k${i}`, `v${i}`)));
  let found = 0;
  for await (const keys of client.scanIterator({ MATCH: 'k*', COUNT: 100 })) found += keys.length;
  assert.equal(found, 1000);
  const pool = createClientPool({ socket: { port, host: '127.0.0.1' } });
  await pool.connect();
  const outcome = await pool.execute(async (one) => {
    await one.watch('a');
    await client.incr('a');
    return one.multi().set('a', 'lost').exec().catch((error) => error.constructor.name);
  });
  assert.equal(outcome, 'WatchError');
  await pool.close();
  assert.equal(await client.get('a'), '3');
}

async function cache() {
  const reader = await connect({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } });
  const writer = await connect();
  for (let i = 0; i < 200; ++i) {
    await writer.set('c', String(i));
    const begin = Date.now();
    while (await reader.get('c') !== String(i)) {
      assert(Date.now() - begin < limit, 'a stale value');
      await sleep(1); // What the cache has resolves without a turn of the event loop.
    }
  }
  await Promise.all([reader.close(), writer.close()]);
}

async function others() {
  const client = new Redis(port, '127.0.0.1');
  assert.deepEqual(await client.multi().set('i', 1).incr('i').exec(), [[null, 'OK'], [null, 2]]);
  await client.watch('i');
  await client.duplicate().incr('i');
  assert.equal(await client.multi().get('i').exec(), null);
  const { RedisStore } = require('connect-redis');
  const sessions = new RedisStore({ client: await connect() });
  await sessions.set('one', { cookie: { maxAge: 10_000 }, user: 1 });
  assert.equal((await sessions.get('one')).user, 1);
  assert.deepEqual(await sessions.ids(), ['one']);
  await sessions.destroy('one');
  assert.equal(await sessions.length(), 0);
}

const cases = {
  async clients() {
    for (const RESP of [2, 3]) {
      const client = await connect({ RESP });
      await strings(client);
      await client.close();
    }
    await cache();
    await others();
  },
  async restart() {
    const clients = [await connect(), await connect({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } }), new Redis(port, '127.0.0.1')];
    clients[2].on('error', () => {});
    let over = false;
    process.stdin.on('end', () => { over = true; }).resume();
    console.log('begun');
    await Promise.all(clients.map(async (client, who) => {
      for (let i = 0; !over; ++i) {
        try {
          await client.set(`r${who}`, String(i));
          const got = await client.get(`r${who}`);
          // The cache of the second client may be behind.
          assert(got === null || Number(got) === i || (who === 1 && Number(got) < i), got);
        } catch (error) {
          assert(!(error instanceof assert.AssertionError), error);
          await sleep(10);
        }
      }
      await client.set(`r${who}`, 'end');
      assert.equal(await client.get(`r${who}`), 'end');
    }));
  },
};

await cases[name]();
console.log('Node.js', process.version, name, 'passed');
process.exit(0);
