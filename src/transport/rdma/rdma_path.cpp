#include "transport/rdma/rdma_path.h"

#include <map>
#include <mutex>

#include "transport/rdma/rdma_end.h"
#include "transport/rdma/verbs.h"

namespace hawser::transport {
namespace rdma {
namespace {

class RdmaPath final : public DataPath {
 public:
  RdmaPath(const RdmaOptions& options, std::shared_ptr<Verbs> verbs) : options_(options), verbs_(std::move(verbs)) {}

  std::string_view name() const noexcept override { return "rdma"; }

  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    if (auto checked = check_rdma_options(options_); !checked) return std::unexpected(std::move(checked.error()));
    const std::lock_guard lock(mutex_);
    std::shared_ptr<RdmaDevice> device = device_.lock();
    if (device == nullptr || device->dead()) {
      auto opened = RdmaDevice::open(options_, *verbs_);
      if (!opened) return std::unexpected(std::move(opened.error()));
      device = std::move(*opened);
      device_ = device;
      ends_.clear();
    }
    std::weak_ptr<RdmaEnd>& known = ends_[&loop];
    if (auto end = known.lock(); end != nullptr) return end;
    auto end = RdmaEnd::make(loop, std::move(device));
    if (!end) return std::unexpected(std::move(end.error()));
    known = *end;
    return *end;
  }

 private:
  const RdmaOptions options_;
  const std::shared_ptr<Verbs> verbs_;
  std::mutex mutex_;
  std::weak_ptr<RdmaDevice> device_;
  std::map<Loop*, std::weak_ptr<RdmaEnd>> ends_;
};

}  // namespace
}  // namespace rdma

std::shared_ptr<DataPath> make_rdma_path(const RdmaOptions& options) {
  return make_rdma_path(options, rdma::system_verbs());
}

std::shared_ptr<DataPath> make_rdma_path(const RdmaOptions& options, std::shared_ptr<rdma::Verbs> verbs) {
  return std::make_shared<rdma::RdmaPath>(options, std::move(verbs));
}

}  // namespace hawser::transport
