// Clients of Node.js against the server of tests/world: node_client.mjs CASE ADDRESS [PROTO_FILE].
//   http2, fetch: part of Node.js. undici, grpc: the packages undici, @grpc/grpc-js and @grpc/proto-loader.
//   grpc_restart, http2_restart: calls until the standard input ends, while the server is started again.
import http2 from 'node:http2';
import { createRequire } from 'node:module';

const [name, address, proto] = process.argv.slice(2);
const limit = 120_000; // Milliseconds. Detects hangs only.
const require = createRequire(process.cwd() + '/');

function check(condition, ...what) {
  if (condition) return;
  console.log('not true:', ...what);
  process.exit(1);
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
setTimeout(() => check(false, 'no end within', limit, 'ms'), limit).unref();

// Runs count calls at once, and fails if one fails.
async function together(what, count, call) {
  const results = await Promise.allSettled(Array.from({ length: count }, (_, i) => call(i)));
  const failed = results.filter((one) => one.status === 'rejected').map((one) => `${one.reason} ${one.reason.cause ?? ''}`);
  check(failed.length === 0, what, failed.length, 'of', count, 'failed:', failed[0]);
}

async function latency(what, count, call) {
  const times = [];
  for (let i = 0; i < count; ++i) {
    const begin = performance.now();
    await call();
    times.push(performance.now() - begin);
  }
  times.sort((a, b) => a - b);
  console.log(`${what}: median ${times[count >> 1].toFixed(1)} ms, p99 ${times[Math.floor(count * 0.99)].toFixed(1)} ms`);
}

// ---- http2 ----

function h2_request(session, path, { method = 'GET', body, pause = 0 } = {}) {
  return new Promise((done, failed) => {
    const stream = session.request({ ':path': path, ':method': method });
    let status = 0;
    let bytes = 0;
    let text = '';
    stream.on('response', (headers) => { status = headers[':status']; });
    stream.on('data', async (part) => {
      bytes += part.length;
      if (part.length < 100) text += part;
      if (pause) {
        stream.pause();
        await sleep(pause);
        stream.resume();
      }
    });
    stream.on('error', failed);
    stream.on('close', () => (status === 200 ? done({ bytes, text }) : failed(new Error(`status ${status} ${text}`))));
    stream.end(body);
  });
}

async function h2_bytes(session, size, more = '') {
  const got = await h2_request(session, `/bytes?n=${size}${more}`);
  if (got.bytes !== size) throw new Error(`${got.bytes} of ${size} bytes`);
}

async function h2_cases() {
  const session = http2.connect(`http://${address}`);
  for (const [count, size] of [[64, 1 << 20], [200, 100_000], [500, 100]]) {
    await together(`${count} requests for ${size} bytes`, count, () => h2_bytes(session, size));
  }
  await together('uploads', 32, async () => {
    const got = await h2_request(session, '/upload', { method: 'POST', body: Buffer.alloc(1 << 20) });
    if (got.text !== '1048576') throw new Error(`the server received ${got.text}`);
  });
  // Streams that are not read. Each has a window of its own.
  const paused = Array.from({ length: 12 }, () => session.request({ ':path': '/bytes?n=1000000' }));
  for (const stream of paused) stream.pause();
  await sleep(300);
  await latency('beside streams that are not read', 30, () => h2_bytes(session, 100));
  await together('streams that are read late', paused.length, (i) => new Promise((done, failed) => {
    let bytes = 0;
    paused[i].on('data', (part) => { bytes += part.length; });
    paused[i].on('end', () => (bytes === 1000000 ? done() : failed(new Error(`${bytes} bytes`))));
    paused[i].on('error', failed);
    paused[i].resume();
  }));
  await h2_request(session, '/parts?n=50&size=1000&ms=5', { pause: 10 });
  // PINGs, and requests that are cancelled.
  for (let i = 0; i < 50; ++i) {
    await together('PINGs', 10, () => new Promise((done, failed) => session.ping((error) => (error ? failed(error) : done()))));
  }
  let over = false;
  const storm = (async () => {
    for (let i = 0; i < 500; ++i) {
      const stream = session.request({ ':path': '/bytes?n=10&ms=100' });
      stream.on('error', () => {});
      stream.close(http2.constants.NGHTTP2_CANCEL);
      if (i % 10 === 0) await sleep(1);
    }
    over = true;
  })();
  while (!over) await together('neighbours of cancelled requests', 10, () => h2_bytes(session, 100));
  await storm;
  session.close();
}

async function until_input_ends(call) {
  let over = false;
  process.stdin.on('end', () => { over = true; }).resume();
  console.log('begun');
  let calls = 0;
  await together('while the server is started again', 8, async () => {
    while (!over) {
      await call();
      ++calls;
    }
  });
  check(calls > 0, 'no call was made');
  console.log(calls, 'calls');
}

// ---- fetch, of Node.js or of the package undici ----

async function fetch_cases(fetch) {
  const get = async (path, size) => {
    const response = await fetch(`http://${address}${path}`);
    const body = await response.arrayBuffer();
    if (response.status !== 200 || body.byteLength !== size) throw new Error(`status ${response.status}, ${body.byteLength} bytes`);
  };
  for (const [count, size] of [[64, 1 << 20], [200, 100_000], [500, 100]]) {
    await together(`${count} requests for ${size} bytes`, count, () => get(`/bytes?n=${size}`, size));
  }
  await together('uploads', 32, async () => {
    const response = await fetch(`http://${address}/upload`, { method: 'POST', body: Buffer.alloc(1 << 20) });
    const text = await response.text();
    if (text !== '1048576') throw new Error(`the server received ${text}`);
  });
  const paused = await Promise.all(Array.from({ length: 12 }, () => fetch(`http://${address}/bytes?n=4000000`)));
  await latency('beside responses that are not read', 30, () => get('/bytes?n=100', 100));
  await together('responses that are read late', paused.length, async (i) => {
    if ((await paused[i].arrayBuffer()).byteLength !== 4000000) throw new Error('too short');
  });
  await get('/parts?n=20&size=100&ms=20', 2000);
}

// ---- grpc ----

async function grpc_client() {
  const grpc = require('@grpc/grpc-js');
  const loader = require('@grpc/proto-loader');
  const loaded = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true }));
  const make = (options) => new loaded.grpc.testing.TestService(address, grpc.credentials.createInsecure(),
    { 'grpc.max_receive_message_length': -1, 'grpc.use_local_subchannel_pool': 1, ...options });
  return { grpc, make };
}

const deadline = () => ({ deadline: Date.now() + limit });

function unary(client, size, metadata) {
  return new Promise((done, failed) => {
    const call = [{ response_size: size }, ...(metadata ? [metadata] : []), deadline()];
    client.UnaryCall(...call, (error, reply) => {
      if (error) return failed(error);
      return reply.payload.body.length === size ? done() : failed(new Error(`${reply.payload.body.length} bytes`));
    });
  });
}

function stream(client, count, size, pause_us) {
  return client.StreamingOutputCall({ response_parameters: Array(count).fill({ size, interval_us: pause_us }) }, deadline());
}

function drain(call, count, seen = 0) {
  return new Promise((done, failed) => {
    call.on('data', () => { ++seen; });
    call.on('error', failed);
    call.on('end', () => (seen === count ? done() : failed(new Error(`${seen} of ${count} items`))));
  });
}

async function grpc_cases() {
  const { grpc, make } = await grpc_client();
  const client = make({});
  for (const [count, size] of [[64, 1 << 20], [200, 100_000], [500, 1000]]) {
    await together(`${count} calls of ${size} bytes`, count, () => unary(client, size));
  }
  await together('streams', 50, () => drain(stream(client, 100, 10_000, 0), 100));
  const paused = Array.from({ length: 8 }, () => stream(client, 20, 1 << 20, 0));
  for (const call of paused) call.pause();
  await sleep(300);
  await latency('beside streams that are not read', 30, () => unary(client, 100));
  await together('streams that are read late', paused.length, (i) => {
    const drained = drain(paused[i], 20);
    paused[i].resume();
    return drained;
  });
  let over = false;
  const storm = (async () => {
    for (let i = 0; i < 500; ++i) {
      const call = stream(client, 100, 10, 1000);
      call.on('error', () => {});
      if (i % 10 === 0) await sleep(1);
      call.cancel();
    }
    over = true;
  })();
  while (!over) await together('neighbours of cancelled calls', 10, () => unary(client, 10));
  await storm;
  const metadata = new grpc.Metadata();
  for (let i = 0; i < 65; ++i) metadata.set(`x-m${i}`, 'v');
  const refused = await unary(client, 10, metadata).catch((error) => error);
  check(refused && refused.code === grpc.status.RESOURCE_EXHAUSTED, '65 pairs of metadata give', String(refused));
  await unary(client, 10);
  const pinging = make({ 'grpc.keepalive_time_ms': 50, 'grpc.keepalive_permit_without_calls': 1 });
  await drain(stream(pinging, 3, 10, 500_000), 3);
  pinging.close();
  client.close();
}

const restart_policy = JSON.stringify({ methodConfig: [{ name: [{}], waitForReady: true, retryPolicy: {
  maxAttempts: 5, initialBackoff: '0.1s', maxBackoff: '1s', backoffMultiplier: 2, retryableStatusCodes: ['UNAVAILABLE'] } }] });

const cases = {
  http2: h2_cases,
  async http2_restart() {
    let session;
    await until_input_ends(async () => {
      for (let left = 500; ; --left) {
        if (!session || session.closed || session.destroyed) {
          session = http2.connect(`http://${address}`);
          session.on('error', () => {});
        }
        try {
          return await h2_bytes(session, 100);
        } catch (error) {
          if (left === 0 || /status [1-9]/.test(String(error))) throw error;
          await sleep(20);
        }
      }
    });
    session.close();
  },
  fetch: () => fetch_cases(globalThis.fetch),
  undici: () => fetch_cases(require('undici').fetch),
  grpc: grpc_cases,
  async grpc_restart() {
    const { make } = await grpc_client();
    const client = make({ 'grpc.service_config': restart_policy, 'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 200 });
    await until_input_ends(() => unary(client, 1000));
    client.close();
  },
};

console.log('Node.js', process.version, name);
check(cases[name], 'there is no case', name);
await cases[name]();
process.exit(0);
