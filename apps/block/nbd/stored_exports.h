#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "block/nbd/exports.h"
#include "block/store/store.h"
#include "block/volume_rules.h"
#include "hawser/loop.h"

namespace hawser::block::nbd {

struct StoredExportsOptions {
  // Requests of at most so many bytes run on the loop's thread, and others on its offload threads. For volumes in
  // memory, where moving a small request to another thread takes longer than the request. 0: none.
  std::size_t direct_bytes_max = 0;
  VolumeRules rules = {};
};

// The volumes of a store of this process, which outlives this.
class StoredExports final : public Exports {
 public:
  StoredExports(Loop& loop, VolumeStore& store, const StoredExportsOptions& options)
      : loop_(loop), store_(store), options_(options) {}

  Task<Result<std::vector<std::string>>> names(Identity who) override;
  Task<Result<std::shared_ptr<NbdDevice>>> open(std::string name, Identity who) override;

 private:
  std::vector<std::string> readable_names(const Identity& who) const;

  Loop& loop_;
  VolumeStore& store_;
  const StoredExportsOptions options_;
};

}  // namespace hawser::block::nbd
