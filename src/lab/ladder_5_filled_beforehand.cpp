#include <string>

#include "lab/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {
namespace {

// The request lives on the stack, and the path does nothing but post it.
class FilledBeforehand final : public Writer {
 public:
  using Writer::Writer;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    const std::size_t offset = message * size_bytes_;
    const transport::rdma::Segment segment = pair_.source->segment(offset, size_bytes_);
    const transport::rdma::SendRequest write = request(message, offset, segment);
    if (Result<void> posted = pair_.sender->post_send({&write, 1}); !posted) return std::unexpected(posted.error());
    return 1;
  }
};

}  // namespace

std::vector<LadderVariant> ladder_filled_beforehand(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) -> Result<LadderRun> {
    const std::uint64_t count = distinct_messages(options);
    auto pair = WritePair::make(bed, {.bytes = count * options.size_bytes, .depth = options.depth});
    if (!pair) return std::unexpected(std::move(pair.error()));
    fill_chunks(*(*pair)->source, options.size_bytes, count);
    FilledBeforehand writer(**pair, options.size_bytes, count, options.depth);
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
