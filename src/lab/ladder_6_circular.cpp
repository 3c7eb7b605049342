#include <algorithm>

#include "lab/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {
namespace {

class Circular final : public Writer {
 public:
  using Writer::Writer;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    const std::size_t offset = message % circular_chunks(depth_) * size_bytes_;
    const transport::rdma::Segment segment = pair_.source->segment(offset, size_bytes_);
    const transport::rdma::SendRequest write = request(message, offset, segment);
    if (Result<void> posted = pair_.sender->post_send({&write, 1}); !posted) return std::unexpected(posted.error());
    return 1;
  }
};

}  // namespace

std::vector<LadderVariant> ladder_circular(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) -> Result<LadderRun> {
    const std::uint64_t chunks = circular_chunks(options.depth);
    auto pair = WritePair::make(bed, {.bytes = chunks * options.size_bytes, .depth = options.depth});
    if (!pair) return std::unexpected(std::move(pair.error()));
    fill_chunks(*(*pair)->source, options.size_bytes, chunks);
    Circular writer(**pair, options.size_bytes, options.count, options.depth);
    Result<LadderRun> result = run_writer(bed, **pair, writer);
    if (!result) return result;
    const std::uint64_t written = std::min(chunks, options.count);
    const Result<void> verified = verify_chunks(*(*pair)->target, options.size_bytes, written, 0);
    if (!verified) return std::unexpected(verified.error());
    result->messages = options.count;
    return result;
  };
  return {{"", Transfer::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
