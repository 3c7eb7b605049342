#include <algorithm>
#include <vector>

#include "lab/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {
namespace {

class PreparedLists final : public Writer {
 public:
  PreparedLists(WritePair& pair, const LadderOptions& options)
      : Writer(pair, options.size_bytes, options.count, options.depth) {
    for (std::uint64_t chunk = 0; chunk < circular_chunks(depth_); ++chunk) {
      segments_.push_back(pair.source->segment(chunk * size_bytes_, size_bytes_));
      remote_addresses_.push_back(pair.target->address(chunk * size_bytes_));
    }
    remote_key_ = pair.target->region->remote_key();
  }

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    const transport::rdma::SendRequest write{.id = message + 1,
                                             .segments = {&segments_[chunk_], 1},
                                             .opcode = transport::rdma::Opcode::write,
                                             .signalled = true,
                                             .remote_address = remote_addresses_[chunk_],
                                             .remote_key = remote_key_};
    if (++chunk_ == segments_.size()) chunk_ = 0;
    if (Result<void> posted = pair_.sender->post_send({&write, 1}); !posted) return std::unexpected(posted.error());
    return 1;
  }

  std::vector<transport::rdma::Segment> segments_;
  std::vector<std::uint64_t> remote_addresses_;
  std::uint32_t remote_key_ = 0;
  std::size_t chunk_ = 0;
};

}  // namespace

std::vector<LadderVariant> ladder_prepared_lists(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) -> Result<LadderRun> {
    const std::uint64_t chunks = circular_chunks(options.depth);
    auto pair = WritePair::make(bed, {.bytes = chunks * options.size_bytes, .depth = options.depth});
    if (!pair) return std::unexpected(std::move(pair.error()));
    fill_chunks(*(*pair)->source, options.size_bytes, chunks);
    PreparedLists writer(**pair, options);
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
