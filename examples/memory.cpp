// A client reads and writes memory of its server without a handler: over any transport, by devices where there are
// some.
#include <hawser/hawser.h>
#include <hawser/memory.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

constexpr std::size_t block_bytes = 4096;
constexpr std::size_t blocks = 256;

// [expose]
// A table of blocks, and behind it a number, that the server lets its clients access.
class Table {
 public:
  hawser::Result<void> open(const hawser::Server& server) {
    auto buffer = hawser::RegisteredBuffer::allocate(server, blocks * block_bytes + sizeof(std::uint64_t));
    if (!buffer) return std::unexpected(buffer.error());
    auto region = buffer->expose(0, buffer->size(), hawser::RegionAccess::read_write);
    if (!region) return std::unexpected(region.error());
    buffer_ = std::move(*buffer);
    region_ = std::move(*region);
    return {};
  }
  // Clients ask for the handle by an ordinary call.
  hawser::RemoteRegion where() { return region_.handle(); }
  char first_of(std::uint64_t block) { return static_cast<char>(buffer_.memory()[block * block_bytes]); }
  // Afterwards, no client reads or changes the memory any more.
  void close() { region_.revoke(); }

 private:
  hawser::RegisteredBuffer buffer_;
  hawser::ExposedRegion region_;
};
// [/expose]

hawser::Task<int> use(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;
  const hawser::Result<hawser::RemoteRegion> region = co_await client.call<&Table::where>();
  auto memory = hawser::RegisteredBuffer::allocate(client, blocks * block_bytes);
  if (!region || !memory) co_return 1;

  // [batch]
  // Every fourth block, as one operation. The call finds all of them written.
  hawser::RemoteMemory remote(client);
  std::memset(memory->memory().data(), 'w', memory->size());
  hawser::TransferBatch batch;
  for (std::size_t i = 0; i < blocks; i += 4) {
    batch.add(memory->memory().subspan(i * block_bytes, block_bytes), i * block_bytes);
  }
  const hawser::CallOptions options;
  const hawser::Result<char> written =
      co_await remote.write_with_notify<&Table::first_of>(*region, batch, options, std::uint64_t{8});
  // [/batch]

  // [atomic]
  const hawser::Result<std::uint64_t> before = co_await remote.fetch_add(*region, blocks * block_bytes, 5);
  // [/atomic]

  // [read]
  // The bytes are verified before the task completes.
  const hawser::Result<void> read =
      co_await remote.read(*region, 4 * block_bytes, memory->memory().first(2 * block_bytes), {.checksum = true});
  // [/read]
  const bool right = read && memory->memory()[0] == std::byte{'w'} && memory->memory()[block_bytes] == std::byte{0};

  const hawser::Result<void> closed = co_await client.call<&Table::close>();
  const hawser::Result<void> stale = co_await remote.read(*region, 0, memory->memory().first(block_bytes));
  const bool refused = closed && !stale && stale.error().code == hawser::ErrorCode::stale_handle;
  std::printf("%zu blocks over %s (%s), counted from %llu, read %s, then: %s\n", batch.blocks(),
              std::string(client.transport()).c_str(), remote.capabilities().one_sided ? "devices" : "frames",
              static_cast<unsigned long long>(before.value_or(99)), right ? "right" : "wrong",
              stale ? "still readable" : stale.error().describe().c_str());
  co_return written.value_or('?') == 'w' && before.value_or(99) == 0 && right&& refused ? 0 : 1;
}

int main() {
  Table table;
  hawser::Server server;
  server.register_handler<&Table::where, &Table::first_of, &Table::close>(&table);
  if (!table.open(server) || !server.start()) return 1;
  return hawser::sync_wait(use(server.address()));
}
