// Large data beside and within the arguments, without copies: attachments, views, and replies that are received
// directly into the caller's memory.
#include <hawser/hawser.h>

#include <cstdio>
#include <cstring>
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
  auto storing = client.call<store>(options, "block-7").reply();
  hawser::Result<hawser::Reply<std::uint64_t>> stored = co_await std::move(storing);
  if (!stored) co_return 1;
  const std::string_view receipt = hawser::as_text(stored->attachment());
  // [/attach]
  std::printf("sum %llu, '%.*s', blocks: %s\n", static_cast<unsigned long long>(stored->value()),
              static_cast<int>(receipt.size()), receipt.data(),
              std::string(*stored->metadata().find("blocks")).c_str());

  // [into]
  // The reply's floats arrive in `memory`; the value is a view of it.
  std::vector<std::byte> memory(2 * block_bytes);
  auto fetching = client.call<weights>(1).into(memory);
  hawser::Result<hawser::Reply<std::span<const float>>> layer = co_await std::move(fetching);
  if (!layer) co_return 1;
  const bool in_place = static_cast<const void*>(layer->value().data()) == memory.data();
  // [/into]
  std::printf("%zu weights, %s\n", layer->value().size(), in_place ? "received in place" : "copied");
  co_return stored->value() == block_bytes&& in_place ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<store, weights>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
