#include "block/ublk/queue.h"

#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "block/store/store_error.h"

namespace hawser::block::ublk {
namespace {

// Between two attempts to submit.
constexpr std::chrono::milliseconds submit_pause{1};

// Before the fetches of a start are given up.
constexpr int submit_attempts_max = 5000;

// Memory that was mapped.
class UblkMapping {
 public:
  UblkMapping() noexcept = default;
  UblkMapping(const UblkMapping&) = delete;
  UblkMapping& operator=(const UblkMapping&) = delete;
  ~UblkMapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  // False with errno.
  bool map(std::size_t bytes, int protection, int flags, int descriptor) noexcept {
    bytes_ = bytes;
    data_ = ::mmap(nullptr, bytes, protection, flags, descriptor, 0);
    return data_ != MAP_FAILED;
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

std::size_t whole_pages(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

// The ring and the memory that the kernel and the queue share.
struct UblkQueue::Kernel {
  Kernel() noexcept = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (made) ::io_uring_queue_exit(&uring);
    ::close(descriptor);
  }

  Result<void> setup(UblkQueueSize size);
  UblkDescriptor request(std::uint16_t tag) const noexcept {
    UblkDescriptor found;
    std::memcpy(&found, descriptors.data() + tag * sizeof(found), sizeof(found));
    return found;
  }
  std::byte* memory(std::uint16_t tag, UblkQueueSize size) const noexcept {
    return data.data() + std::size_t{tag} * size.io_bytes_max;
  }

  int descriptor = -1;
  UblkMapping descriptors;  // A UblkDescriptor for each tag.
  UblkMapping data;         // Each tag has a part. Pages that no request has used need no memory.
  ::io_uring uring{};
  bool made = false;
};

Result<void> UblkQueue::Kernel::setup(UblkQueueSize size) {
  if (!descriptors.map(whole_pages(size.depth * sizeof(UblkDescriptor)), PROT_READ, MAP_SHARED, descriptor)) {
    return system_fail(errno, "map the requests of a ublk device");
  }
  if (!data.map(std::size_t{size.depth} * size.io_bytes_max, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)) {
    return system_fail(errno, "reserve the memory of the requests of a ublk device");
  }
  // An entry for each tag: the queue of submissions is never full.
  const int status = ::io_uring_queue_init(size.depth, &uring, IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER);
  if (status < 0) return system_fail(-status, "make a ring for the requests of a ublk device");
  made = true;
  return {};
}

Task<Result<std::unique_ptr<UblkQueue>>> UblkQueue::open(Loop& loop, nbd::NbdDevice& device, int descriptor,
                                                         UblkQueueSize size) {
  auto kernel = std::make_unique<Kernel>();
  kernel->descriptor = descriptor;
  if (Result<void> made = kernel->setup(size); !made) co_return std::unexpected(made.error());
  std::unique_ptr<UblkQueue> queue(new UblkQueue(loop, device, size, std::move(kernel)));
  if (Result<void> fetched = co_await queue->fetch(); !fetched) co_return std::unexpected(fetched.error());
  co_return queue;
}

UblkQueue::UblkQueue(Loop& loop, nbd::NbdDevice& device, UblkQueueSize size, std::unique_ptr<Kernel> kernel)
    : loop_(loop),
      device_(device),
      size_(size),
      limits_{.size = device.info().size, .io_bytes_max = size.io_bytes_max, .read_only = device.info().read_only},
      kernel_(std::move(kernel)),
      tags_(size.depth) {
  loop_.poller().watch(kernel_->uring.ring_fd, *this);
  loop_.add_source(*this);
}

UblkQueue::~UblkQueue() {
  loop_.remove_source(*this);
  loop_.remove_tick_end(*this);
  loop_.poller().unwatch(kernel_->uring.ring_fd, *this);
}

// The driver refuses a fetch when it is submitted, at the end of a tick.
Task<Result<void>> UblkQueue::fetch() {
  for (std::uint16_t tag = 0; tag < size_.depth; ++tag) send(io::fetch, tag, 0);
  for (int attempt = 0; ::io_uring_sq_ready(&kernel_->uring) != 0; ++attempt) {
    if (attempt == submit_attempts_max) co_return system_fail(ENOMEM, "submit the fetches of a ublk device");
    co_await loop_.sleep(submit_pause);
  }
  poll();
  if (refused_ != 0) co_return system_fail(refused_, "fetch the requests of a ublk device");
  co_return Result<void>{};
}

Task<void> UblkQueue::join() {
  struct Awaiter {
    UblkQueue& queue;
    bool await_ready() const noexcept { return queue.tags_ == 0; }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { queue.joining_ = waiting; }
    void await_resume() const noexcept {}
  };
  co_await Awaiter{*this};
  co_await requests_.join();
}

// Takes the tags whose fetch has ended.
bool UblkQueue::poll() {
  ::io_uring* const ring = &kernel_->uring;
  bool any = false;
  ::io_uring_cqe* completion = nullptr;
  while (::io_uring_peek_cqe(ring, &completion) == 0) {
    const auto tag = static_cast<std::uint16_t>(completion->user_data);
    const int status = completion->res;
    ::io_uring_cqe_seen(ring, completion);
    any = true;
    if (status == 0) {
      begin(tag);
      continue;
    }
    // ENODEV: the device was stopped.
    if (status != -ENODEV && std::exchange(refused_, -status) == 0) {
      loop_.log(LogLevel::warning, "ublk", std::string("a request cannot be fetched: ") + std::strerror(-status));
    }
    if (--tags_ == 0 && joining_) loop_.resume_soon(std::exchange(joining_, nullptr));
  }
  return any;
}

bool UblkQueue::arm() { return ::io_uring_cq_ready(&kernel_->uring) == 0; }

void UblkQueue::begin(std::uint16_t tag) {
  const std::expected<UblkRequest, int> request = UblkRequest::decode(kernel_->request(tag), limits_);
  if (!request) return send(io::commit_and_fetch, tag, -request.error());
  try {
    requests_.spawn(serve(tag, *request));
  } catch (const std::bad_alloc&) {
    send(io::commit_and_fetch, tag, -ENOMEM);
  }
}

Task<void> UblkQueue::serve(std::uint16_t tag, UblkRequest request) {
  std::int32_t result = -ENOMEM;
  try {
    const MutableBytes data(kernel_->memory(tag, size_), request.has_data() ? request.bytes : 0);
    result = co_await execute(device_, request, data);
  } catch (const std::bad_alloc&) {
  }
  send(io::commit_and_fetch, tag, result);
}

void UblkQueue::send(unsigned operation, std::uint16_t tag, std::int32_t result) {
  ::io_uring_sqe* const entry = ::io_uring_get_sqe(&kernel_->uring);
  const UblkIoCommand command{.queue = 0,
                              .tag = tag,
                              .result = result,
                              .address = reinterpret_cast<std::uintptr_t>(kernel_->memory(tag, size_))};
  if (entry == nullptr) std::abort();  // The ring has an entry for each tag.
  std::memset(entry, 0, 2 * sizeof(*entry));
  entry->opcode = IORING_OP_URING_CMD;
  entry->fd = kernel_->descriptor;
  entry->cmd_op = operation;
  entry->user_data = tag;
  std::memcpy(entry->cmd, &command, sizeof(command));
  loop_.at_tick_end(*this);
}

void UblkQueue::on_tick_end() {
  // Without memory of the kernel, the entries stay in the ring, or those behind the first ones.
  if (::io_uring_submit(&kernel_->uring) < 0 || ::io_uring_sq_ready(&kernel_->uring) != 0) {
    again_.start(loop_, loop_.after(submit_pause));
  }
}

}  // namespace hawser::block::ublk
