#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/nbd/exports.h"
#include "block/store/store.h"
#include "block/volume_rules.h"
#include "hawser/loop.h"

namespace hawser::block::nbd {

struct StoredExportsOptions {
  // Reads and writes of at most so many bytes, and flushes, run on the loop's thread unless they wait for another
  // request. All others run on its offload threads. For volumes in memory, where moving a small request to another
  // thread takes longer than the request. 0: none.
  std::size_t direct_bytes_max = 0;
};

// The volumes of a store of this process, which outlives this.
class StoredExports final : public Exports {
 public:
  StoredExports(Loop& loop, VolumeStore& store, const StoredExportsOptions& options, VolumeRules rules = {})
      : Exports(std::move(rules)), loop_(loop), store_(store), options_(options) {}

 private:
  Task<Result<std::vector<std::string>>> list() override { co_return store_.names(); }
  Task<Result<std::shared_ptr<NbdDevice>>> find(std::string name, bool writable) override;

  Loop& loop_;
  VolumeStore& store_;
  const StoredExportsOptions options_;
};

}  // namespace hawser::block::nbd
