#include "transport/ucx/ucx_path.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "transport/ucx/connection/ucx_end.h"

namespace hawser::transport {
namespace {

class UcxRegistration final : public MemoryRegistration {
 public:
  UcxRegistration(std::shared_ptr<UcxMemory> memory, const std::byte* data) : memory_(std::move(memory)), data_(data) {}
  ~UcxRegistration() override { memory_->remove(data_); }

  // UCX's active messages reach nothing by themselves.
  Result<std::unique_ptr<MemoryExposure>> expose(MutableBytes, bool, bool) override {
    class Nowhere final : public MemoryExposure {
      std::vector<ExposedPlace> places() const override { return {}; }
    };
    return std::make_unique<Nowhere>();
  }

 private:
  const std::shared_ptr<UcxMemory> memory_;
  const std::byte* const data_;
};

class UcxPath final : public DataPath {
 public:
  explicit UcxPath(const UcxOptions& options) : options_(options) {}

  std::string_view name() const noexcept override { return "ucx"; }

  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    // A loop that never sleeps needs no events of UCX's, which cost the sender of each message a look.
    const bool events = loop.options().wait != Wait::busy_poll;
    Result<std::shared_ptr<UcxContext>> context = context_for(events);
    if (!context) return std::unexpected(context.error());
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = ends_.find(&loop); found != ends_.end()) {
        if (std::shared_ptr<UcxEnd> end = found->second.lock()) return end;
      }
    }
    Result<std::shared_ptr<UcxEnd>> end = UcxEnd::make(std::move(*context), loop);
    if (!end) return std::unexpected(end.error());
    const std::lock_guard lock(mutex_);
    std::erase_if(ends_, [](const auto& entry) { return entry.second.expired(); });
    ends_[&loop] = *end;
    return std::move(*end);
  }

  Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block, bool kept) override {
    if (!kept) {
      return fail(ErrorCode::unavailable,
                  "UCX can't be told to let go of memory, so that it copies the caller's own: use "
                  "RegisteredBuffer::allocate()",
                  ErrorScope::transport);
    }
    if (const auto loaded = UcpLibrary::load(); !loaded) return std::unexpected(loaded.error());
    if (auto added = memory_->add(memory, block); !added) return std::unexpected(std::move(added.error()));
    return std::make_unique<UcxRegistration>(memory_, memory.data());
  }

  std::vector<PathMemory> memory() override {
    if (memory_->bytes() == 0) return {};
    return {{.device = "ucx",
             .user_bytes = memory_->bytes(),
             .user_sends = memory_->sends(),
             .user_receives = memory_->receives()}};
  }

 private:
  Result<std::shared_ptr<UcxContext>> context_for(bool events) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<UcxContext>& kept = contexts_[events ? 1 : 0];
    if (std::shared_ptr<UcxContext> context = kept.lock()) return context;
    Result<std::shared_ptr<UcxContext>> context = UcxContext::make(options_, events, memory_);
    if (context) kept = *context;
    return context;
  }

  const UcxOptions options_;
  const std::shared_ptr<UcxMemory> memory_ = std::make_shared<UcxMemory>();
  std::mutex mutex_;  // Guards what follows.
  std::array<std::weak_ptr<UcxContext>, 2> contexts_;
  std::map<Loop*, std::weak_ptr<UcxEnd>> ends_;  // A loop's end is looked up on its own thread only.
};

}  // namespace

std::shared_ptr<DataPath> make_ucx_path(const UcxOptions& options) { return std::make_shared<UcxPath>(options); }

}  // namespace hawser::transport
