#include "transport/ucx/ucx_transport.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "base/try.h"
#include "transport/ucx/connection/ucx_transport_worker.h"

namespace hawser::transport {
namespace {

class UcxRegistration final : public MemoryRegistration {
 public:
  UcxRegistration(std::shared_ptr<UcxMemory> memory, const std::byte* data) : memory_(std::move(memory)), data_(data) {}
  ~UcxRegistration() override { memory_->remove(data_); }

  // UCX active messages cannot access a peer's memory, so there is nothing to expose.
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

class UcxTransport final : public Transport {
 public:
  UcxTransport(const UcxOptions& options, std::shared_ptr<UcxLingering> lingering)
      : options_(options), lingering_(std::move(lingering)) {}

  std::string_view name() const noexcept override { return "ucx"; }

  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    // A loop that never sleeps needs no wake-up by UCX. Without wake-up, sending a message costs less.
    const bool events = loop.options().wait != Wait::busy_poll;
    TRY(std::shared_ptr<UcxContext> context, context_for(events));
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = workers_.find(&loop); found != workers_.end()) {
        if (std::shared_ptr<UcxTransportWorker> worker = found->second.lock()) return worker;
      }
    }
    TRY(std::shared_ptr<UcxTransportWorker> worker, UcxTransportWorker::make(std::move(context), loop));
    const std::lock_guard lock(mutex_);
    std::erase_if(workers_, [](const auto& entry) { return entry.second.expired(); });
    workers_[&loop] = worker;
    return worker;
  }

  Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block, bool kept) override {
    if (!kept) {
      return fail(Error::of_transport(ErrorCode::unavailable,
                                      "UCX cannot cancel the use of memory, so that it copies the caller's own: use "
                                      "RegisteredBuffer::allocate()"));
    }
    TRY(UcpLibrary::load());
    TRY(memory_->add(memory, block));
    return std::make_unique<UcxRegistration>(memory_, memory.data());
  }

  std::vector<TransportMemory> memory() override {
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
    Result<std::shared_ptr<UcxContext>> context = UcxContext::make(options_, events, memory_, lingering_);
    if (context) kept = *context;
    return context;
  }

  const UcxOptions options_;
  const std::shared_ptr<UcxLingering> lingering_;
  const std::shared_ptr<UcxMemory> memory_ = std::make_shared<UcxMemory>();
  std::mutex mutex_;  // Guards the members below.
  std::array<std::weak_ptr<UcxContext>, 2> contexts_;
  std::map<Loop*, std::weak_ptr<UcxTransportWorker>> workers_;  // Each loop looks up its worker on its own thread only.
};

}  // namespace

std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options) {
  std::shared_ptr<void> kept;
  return make_ucx_transport(options, kept);
}

std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options, std::shared_ptr<void>& kept) {
  if (kept == nullptr) kept = std::make_shared<UcxLingering>();
  return std::make_shared<UcxTransport>(options, std::static_pointer_cast<UcxLingering>(kept));
}

}  // namespace hawser::transport
