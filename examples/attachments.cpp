// Large data beside and within the arguments, without copies: attachments, views, and replies that are received
// directly into the caller's memory.
#include <hawser/hawser.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

constexpr std::size_t block_bytes = 1 << 20;

// [store]
// Receives a block beside its name, reads it in place, and sends another block back.
std::uint64_t store(hawser::Context& context, std::string_view name) {
  std::uint64_t sum = 0;
  for (const std::byte byte : context.attachment()) sum += static_cast<std::uint8_t>(byte);
  hawser::Buffer receipt = hawser::Buffer::copy_of("receipt for " + std::string(name));
  context.set_attachment(std::move(receipt));
  context.add_metadata("blocks", "1");
  return sum;
}
// [/store]

// [place]
// A file of the server's. Clients write blocks of it.
struct File {
  std::vector<std::byte> bytes = std::vector<std::byte>(4 * block_bytes);

  // The part of the file, or nothing if the client named one that does not exist.
  std::optional<hawser::Bytes> part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    return hawser::Bytes(bytes).subspan(offset, size);
  }
  // Selects the memory for the attachment of write(): the block's place in the file.
  hawser::Buffer place(const hawser::IncomingPayload& payload) const {
    const auto arguments = payload.arguments<std::uint64_t>();
    const auto memory = arguments ? part(std::get<0>(*arguments), payload.bytes) : std::nullopt;
    return memory ? hawser::Buffer::of_foreign(*memory, [] {}) : hawser::Buffer();
  }
  // The attachment lies in the file already.
  bool write(hawser::Context& context, std::uint64_t offset) {
    return context.attachment().data() == bytes.data() + offset;
  }
  // Sends a part of the file without a copy. `sent` becomes true when nobody reads the part any more.
  hawser::Result<std::string_view> read(hawser::Context& context, std::uint64_t offset, std::uint64_t size) {
    const auto memory = part(offset, size);
    if (!memory) return std::unexpected(hawser::Error::application(1, "the file has no such part"));
    context.keep_until_sent(hawser::Buffer::of_foreign(*memory, [this] { sent = true; }));
    return hawser::as_text(*memory);
  }
  std::atomic<bool> sent = false;
};
// [/place]

// [weights]
// Returns a view of the server's own memory, which is sent without a copy.
std::span<const float> weights(int layer) {
  static const std::vector<float> table(block_bytes / sizeof(float), 0.5F);
  return std::span(table).first(layer == 0 ? 16 : table.size());
}
// [/weights]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;

  // [attach]
  const std::vector<std::byte> block(block_bytes, std::byte{1});
  hawser::CallOptions options{.attachment = block};
  hawser::Result<hawser::Reply<std::uint64_t>> stored = co_await client.call<store>(options, "block-7").reply();
  if (!stored) co_return 1;
  const std::string_view receipt = hawser::as_text(stored->attachment());
  // [/attach]
  std::printf("sum %llu, '%.*s', blocks: %s\n", static_cast<unsigned long long>(stored->value()),
              static_cast<int>(receipt.size()), receipt.data(),
              std::string(*stored->metadata().find("blocks")).c_str());

  // [into]
  // The reply's floats arrive in `memory`; the value is a view of it.
  std::vector<std::byte> memory(2 * block_bytes);
  hawser::Result<hawser::Reply<std::span<const float>>> layer = co_await client.call<weights>(1).into(memory);
  if (!layer) co_return 1;
  const bool in_place = static_cast<const void*>(layer->value().data()) == memory.data();
  // [/into]
  std::printf("%zu weights, %s\n", layer->value().size(), in_place ? "received in place" : "copied");

  const std::uint64_t offset = block_bytes;
  hawser::Result<bool> written = co_await client.call<&File::write>(options, offset);
  hawser::Result<std::string> part = co_await client.call<&File::read>(offset, block_bytes);
  std::printf("written %s\n", written.value_or(false) ? "in place" : "elsewhere");
  const bool same = written.value_or(false) && part && hawser::as_bytes(*part)[7] == block[7];
  co_return stored->value() == block_bytes&& in_place&& same ? 0 : 1;
}

int main() {
  File file;
  hawser::Server server;
  server.register_handler<store, weights>();
  // [register]
  auto place = [&file](const hawser::IncomingPayload& payload) { return file.place(payload); };
  server.register_handler<&File::write>(&file, {.receive_into = place});
  server.register_handler<&File::read>(&file);
  // [/register]
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
