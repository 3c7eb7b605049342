#include <string>

#include "lab/ladder.h"
#include "lab/naive_writer.h"

namespace hawser::lab {
namespace {

// Each message at an offset of its own, since the one before may still be on the wire.
class WritePipelined final : public NaiveWriter {
 public:
  using NaiveWriter::NaiveWriter;

 private:
  Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t) override {
    return post_naively(processor, message, message * size_bytes_, pair_.source->region->local_key());
  }
};

}  // namespace

std::vector<LadderVariant> ladder_write_pipelined(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) -> Result<LadderRun> {
    const std::uint64_t count = distinct_messages(options);
    auto pair = WritePair::make(bed, {.bytes = count * options.size_bytes, .depth = options.depth});
    if (!pair) return std::unexpected(std::move(pair.error()));
    WritePipelined writer(**pair, options.size_bytes, count, options.depth);
    Result<LadderRun> result = run_writer(bed, **pair, writer);
    if (!result) return result;
    const Result<void> verified = verify_chunks(*(*pair)->target, options.size_bytes, count, 0);
    if (!verified) return std::unexpected(verified.error());
    result->messages = count;
    if (count < options.count) result->note = "as many messages as the memory holds: " + std::to_string(count);
    return result;
  };
  return {{"", Transfer::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
