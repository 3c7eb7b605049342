#pragma once

#include <memory>
#include <unordered_map>

#include "base/descriptor.h"
#include "exec/io_uring.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Waits for a ring's completions, and watches descriptors by multishot polls. Polling costs no system call while no
// completion has arrived.
class IoUringPoller final : public Poller {
 public:
  // The error names what this kernel lacks or forbids.
  static Result<std::unique_ptr<Poller>> make();
  ~IoUringPoller() override;

  std::string_view name() const noexcept override { return "io_uring"; }
  Time now() const noexcept override;
  std::size_t wait(Duration timeout, Time& now) override;
  void wake() noexcept override;
  void watch(int fd, Watcher& watcher) override;
  void unwatch(int fd, Watcher& watcher) noexcept override;
  IoUring* io_uring() noexcept override { return ring_.get(); }

 private:
  struct Watch final : IoUring::Handler {
    Watch(IoUring& on, int watched, Watcher& notified);
    void on_completion(const IoUring::Completion& completion) override;

    IoUring& ring;
    int fd;
    Watcher& watcher;
    IoUring::Token token;
  };
  struct Wake final : Watcher {
    void on_ready(Readiness) override { ++seen; }
    std::size_t seen = 0;
  };

  IoUringPoller(std::unique_ptr<IoUring> ring, Descriptor bell);

  std::unique_ptr<IoUring> ring_;
  const Descriptor bell_;
  Wake wake_;
  std::unordered_map<int, std::unique_ptr<Watch>> watches_;  // By descriptor.
};

}  // namespace hawser::exec
