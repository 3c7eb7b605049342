// Large messages that processes of one host pass on without a copy: the client writes its request, and the server its
// reply, in the memory that both share. Over other transports the same program uses ordinary memory.
#include <hawser/hawser.h>
#include <hawser/loan.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <span>

constexpr std::size_t samples = 1 << 20;

// [loan_reply]
// Doubles each sample. The reply is written where the client reads it.
std::span<const float> doubled(hawser::Context& context, std::span<const float> given) {
  hawser::Buffer memory = hawser::loan(context, given.size_bytes());
  const auto reply = std::span(reinterpret_cast<float*>(memory.mutable_data()), given.size());
  std::transform(given.begin(), given.end(), reply.begin(), [](float one) { return 2 * one; });
  context.keep_until_sent(std::move(memory));
  return reply;
}
// [/loan_reply]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;
  // [loan]
  hawser::Buffer memory = hawser::loan(client, samples * sizeof(float));
  const auto request = std::span(reinterpret_cast<float*>(memory.mutable_data()), samples);
  std::iota(request.begin(), request.end(), 0.0F);
  // The server reads the request where it lies. From now on nobody writes there.
  auto reply = co_await client.call<doubled>(std::span<const float>(request)).reply();
  // [/loan]
  if (!reply) co_return 1;
  std::printf("%zu samples over %s\n", reply->value().size(), std::string(client.transport()).c_str());
  co_return reply->value().size() == samples && reply->value()[1000] == 2000.0F ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<doubled>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
