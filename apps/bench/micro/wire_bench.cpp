// The work for every frame, without I/O.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "hawser/metadata.h"
#include "wire/call_table.h"
#include "wire/frame.h"
#include "wire/metadata.h"

namespace hawser::bench {
namespace {

constexpr std::size_t body_bytes = 132;  // A string of 128 bytes.
constexpr wire::RequestFrame request{
    .call = wire::CallId(7, 1), .method = 0x1234, .signature = 0x5678, .deadline = 1000};

std::vector<std::byte> make_head() {
  std::vector<std::byte> head(wire::header_bytes + body_bytes);
  wire::encode(head.data(), request);
  return head;
}

void encode_header(benchmark::State& state) {
  std::vector<std::byte> head = make_head();
  for (auto _ : state) {
    wire::encode(head.data(), request);
    benchmark::DoNotOptimize(head.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(encode_header)->Name("frame/encode");

void decode_frame(benchmark::State& state) {
  const std::vector<std::byte> head = make_head();
  for (auto _ : state) {
    const Result<wire::Frame> frame = wire::decode_frame(head, {}, 0);
    wire::visit(*frame, [](auto fields) { benchmark::DoNotOptimize(fields); });
    benchmark::DoNotOptimize(frame);
  }
}
BENCHMARK(decode_frame)->Name("frame/decode");

void checksum(benchmark::State& state) {
  std::vector<std::byte> head = make_head();
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)));
  const ConstBuffer piece{payload.data(), payload.size()};
  for (auto _ : state) {
    wire::write_checksum(head, {&piece, 1});
    benchmark::DoNotOptimize(head.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (state.range(0) + static_cast<std::int64_t>(head.size())));
}
BENCHMARK(checksum)->Name("frame/checksum/payload_bytes")->Arg(0)->Arg(64 << 10);

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> entries{
    {{"tenant", "blue"},
     {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
     {"a", "b"},
     {"user", "x"}}};

std::vector<std::byte> make_metadata() {
  std::size_t bytes = 0;
  for (const auto& [key, value] : entries) bytes += wire::metadata_entry_bytes(key, value);
  std::vector<std::byte> metadata(bytes);
  std::byte* to = metadata.data();
  for (const auto& [key, value] : entries) to = wire::write_metadata_entry(to, key, value);
  return metadata;
}

void write_metadata(benchmark::State& state) {
  std::vector<std::byte> metadata = make_metadata();
  for (auto _ : state) {
    std::byte* to = metadata.data();
    for (const auto& [key, value] : entries) to = wire::write_metadata_entry(to, key, value);
    benchmark::DoNotOptimize(to);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(write_metadata)->Name("metadata/write_4");

void check_and_find(benchmark::State& state) {
  const std::vector<std::byte> metadata = make_metadata();
  for (auto _ : state) {
    const bool well_formed = wire::check_metadata(metadata);
    const auto found = MetadataView(metadata).find("user");
    benchmark::DoNotOptimize(well_formed);
    benchmark::DoNotOptimize(found);
  }
}
BENCHMARK(check_and_find)->Name("metadata/check_4_and_find_last");

void open_and_close(benchmark::State& state) {
  wire::CallTable<int> table(256);
  int call = 0;
  for (auto _ : state) {
    const wire::CallId id = table.open(call);
    const auto found = table.find(id);
    benchmark::DoNotOptimize(found);
    table.close(id);
  }
}
BENCHMARK(open_and_close)->Name("call_table/open_find_close");

}  // namespace
}  // namespace hawser::bench
