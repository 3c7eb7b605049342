#include "bench/micro/counted_calls.h"

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "hawser/hawser.h"
#include "hawser/tracing.h"

namespace {

thread_local std::uint64_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace hawser::bench::counted_calls {

const TransportOptions over_tcp{.enabled = {}};

std::string_view echo(std::string_view text) { return text; }
std::uint64_t server_allocations() { return allocations; }

// Makes calls until the shared number of calls is used up.
Task<void> call_repeatedly(Client& client, std::string_view payload, std::uint64_t& calls_left) {
  while (calls_left > 0) {
    --calls_left;
    const auto reply = co_await client.call<echo>(payload).reply();
    if (!reply) throw std::runtime_error(reply.error().describe());
    if (reply->value().size() != payload.size()) throw std::runtime_error("a reply is not what was sent");
  }
}

Task<void> make_calls(Client& client, std::string_view payload, unsigned in_flight, std::uint64_t calls) {
  Scope callers;
  for (unsigned i = 0; i < in_flight; ++i) callers.spawn(call_repeatedly(client, payload, calls));
  co_await callers.join();
}

Task<std::uint64_t> ask_server(Client& client) {
  const Result<std::uint64_t> reply = co_await client.call<server_allocations>();
  if (!reply) throw std::runtime_error(reply.error().describe());
  co_return *reply;
}

Task<CountedAllocations> count(Loop& loop, std::string address, CountedShape shape, std::uint64_t warm_up) {
  Client client(loop, {.transports = over_tcp});
  const Result<void> connected = co_await client.connect(address);
  if (!connected) throw std::runtime_error(connected.error().describe());
  const std::string payload(shape.size_bytes, 'x');
  co_await make_calls(client, payload, shape.in_flight, warm_up);
  // Twice, since the first request of the counters may itself allocate.
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(co_await ask_server(client));
  }
  const std::uint64_t server_before = co_await ask_server(client);
  const std::uint64_t client_before = allocations;
  co_await make_calls(client, payload, shape.in_flight, shape.calls);
  const std::uint64_t client_after = allocations;
  const std::uint64_t server_after = co_await ask_server(client);
  co_return CountedAllocations{client_after - client_before, server_after - server_before};
}

}  // namespace hawser::bench::counted_calls

namespace hawser::bench {

CountedAllocations make_counted_calls(const CountedShape& shape, std::uint64_t warm_up) {
  // Sleeps at once, so that the count has work and no polling.
  const LoopOptions waits{.wait = Wait::event, .log = no_log()};
  Server server({.listen = "127.0.0.1:0", .threads = 1, .loop = waits, .transports = counted_calls::over_tcp});
  server.register_handler<counted_calls::echo, counted_calls::server_allocations>();
  if (shape.tracer) server.use(Tracer().server_spans());
  if (const Result<void> started = server.start(); !started) throw std::runtime_error(started.error().describe());
  Loop loop(waits);
  const CountedAllocations result = loop.run(counted_calls::count(loop, server.address(), shape, warm_up));
  server.stop(Duration::zero());
  return result;
}

}  // namespace hawser::bench
