#include "exec/io_uring.h"

#include <liburing.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/descriptor.h"
#include "exec/idle_functions.h"
#include "heap/allocation_hook.h"

namespace hawser::exec {
namespace {

constexpr unsigned submissions = 256;   // Operations between two system calls; more cause further calls.
constexpr unsigned completions = 4096;  // The kernel keeps further completions in a list of its own, which is slow.
constexpr unsigned short buffer_group = 0;

// The loop's own thread finds and delivers completions when it polls, so the kernel need not interrupt it. A flag in
// shared memory says when a system call is necessary. Linux 6.1 has all of these flags.
constexpr unsigned setup_flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
                                 IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED;

// Unlike a thread's id, this number is not used again; unlike the kernel's id, it costs no system call.
std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  static thread_local const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

std::string failed(const char* what, int error) {
  return std::string(what) + ": " + std::generic_category().message(error);
}

}  // namespace

// ---- The kernel's side ----

struct IoUring::Ring {
  Ring() noexcept = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring();
  // Sets up the ring. Returns an empty string on success, else what failed.
  std::string setup();
  std::string setup_buffers();
  // Binds the ring to this thread.
  int enable() noexcept;
  // Receives into provided buffers for a test. Returns an empty string on success, else what failed. Binds the ring to
  // this thread.
  std::string try_out();

  ::io_uring uring{};
  bool made = false;
  io_uring_buf_ring* buffer_ring = nullptr;
  std::byte* memory = nullptr;  // The memory of the provided buffers.
};

IoUring::Ring::~Ring() {
  if (made) io_uring_queue_exit(&uring);
  detail::allocation_hook::freed(memory);
  if (buffer_ring != nullptr) munmap(buffer_ring, buffers * sizeof(io_uring_buf));
  if (memory != nullptr) munmap(memory, std::size_t{buffers} * buffer_bytes);
}

std::string IoUring::Ring::setup() {
  io_uring_params params{};
  params.flags = setup_flags;
  params.cq_entries = completions;
  if (const int error = io_uring_queue_init_params(submissions, &uring, &params); error < 0) {
    return failed("io_uring_setup", -error);
  }
  made = true;
  if (const int fd = above_standard(uring.ring_fd); fd != uring.ring_fd) {
    uring.ring_fd = uring.enter_ring_fd = fd;
    if (fd < 0) return failed("io_uring_setup", errno);
  }
  if ((params.features & IORING_FEAT_EXT_ARG) == 0) return "the kernel cannot wait with a timeout";
  io_uring_probe* const probe = io_uring_get_probe_ring(&uring);
  if (probe == nullptr) return "the kernel does not list its operations (IORING_REGISTER_PROBE failed)";
  bool complete = true;
  for (const int operation : {IORING_OP_RECV, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL}) {
    complete &= io_uring_opcode_supported(probe, operation) != 0;
  }
  io_uring_free_probe(probe);
  if (!complete) return "the kernel lacks an operation";
  return setup_buffers();
}

std::string IoUring::Ring::setup_buffers() {
  const auto map = [](std::size_t bytes) -> void* {
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
  };
  buffer_ring = static_cast<io_uring_buf_ring*>(map(buffers * sizeof(io_uring_buf)));
  memory = static_cast<std::byte*>(map(std::size_t{buffers} * buffer_bytes));
  if (buffer_ring == nullptr || memory == nullptr) return failed("mmap", errno);
  detail::allocation_hook::allocated(memory, std::size_t{buffers} * buffer_bytes, __builtin_return_address(0));
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(buffer_ring);
  registration.ring_entries = buffers;
  registration.bgid = buffer_group;
  if (const int error = io_uring_register_buf_ring(&uring, &registration, 0); error < 0) {
    return failed("io_uring_register_buf_ring", -error);
  }
  io_uring_buf_ring_init(buffer_ring);
  for (unsigned i = 0; i < buffers; ++i) {
    io_uring_buf_ring_add(buffer_ring, memory + std::size_t{i} * buffer_bytes, buffer_bytes,
                          static_cast<unsigned short>(i), io_uring_buf_ring_mask(buffers), static_cast<int>(i));
  }
  io_uring_buf_ring_advance(buffer_ring, buffers);
  return {};
}

int IoUring::Ring::enable() noexcept {
  // This call does what io_uring_enable_rings() does. liburing 2.3 declares that function but does not export it.
  return io_uring_register(static_cast<unsigned>(uring.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
}

std::string IoUring::Ring::try_out() {
  if (const int error = enable(); error < 0) return failed("enabling the ring", -error);
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return failed("socketpair", errno);
  const Descriptor receiver(ends[0]);
  const Descriptor sender(ends[1]);
  io_uring_sqe* const sqe = io_uring_get_sqe(&uring);
  io_uring_prep_recv_multishot(sqe, receiver.get(), nullptr, 0, 0);
  sqe->flags |= IOSQE_BUFFER_SELECT;
  sqe->buf_group = buffer_group;
  std::string reason;
  // The test receives twice, so that the second completion comes from the same submission.
  for (int turn = 0; turn < 2 && reason.empty(); ++turn) {
    __kernel_timespec limit{.tv_sec = 1, .tv_nsec = 0};
    io_uring_cqe* cqe = nullptr;
    if (send(sender.get(), "x", 1, MSG_NOSIGNAL) != 1 ||
        io_uring_submit_and_wait_timeout(&uring, &cqe, 1, &limit, nullptr) < 0 || cqe == nullptr || cqe->res != 1 ||
        (cqe->flags & (IORING_CQE_F_BUFFER | IORING_CQE_F_MORE)) != (IORING_CQE_F_BUFFER | IORING_CQE_F_MORE)) {
      reason = "receiving again and again into provided buffers does not work";
    } else {
      io_uring_cqe_seen(&uring, cqe);
    }
  }
  return reason;
}

// ---- Operations ----

Result<std::unique_ptr<IoUring>> IoUring::make() {
  const auto unavailable = [](const std::string& reason) {
    return fail(Error::of_transport(ErrorCode::unavailable, "io_uring cannot be used: " + reason));
  };
  // The test binds a ring to this thread, and the loop may run on another one.
  {
    Ring trial;
    std::string reason = trial.setup();
    if (reason.empty()) reason = trial.try_out();
    if (!reason.empty()) return unavailable(reason);
  }
  auto ring = std::make_unique<Ring>();
  if (const std::string reason = ring->setup(); !reason.empty()) return unavailable(reason);
  return std::unique_ptr<IoUring>(new IoUring(std::move(ring)));
}

IoUring::IoUring(std::unique_ptr<Ring> ring) noexcept : ring_(std::move(ring)) {}

IoUring::~IoUring() = default;

IoUring::Token IoUring::add(Operation operation) {
  const auto added = slots_.add();
  added.value.operation = operation;
  queue_arm(added.index);
  return token_of(added.index, added.generation);
}

void IoUring::queue_arm(std::uint32_t index) noexcept {
  if (std::exchange(slots_[index].to_arm, true)) return;
  slots_[index].next_to_arm = nowhere;
  (to_arm_.last == nowhere ? to_arm_.first : slots_[to_arm_.last].next_to_arm) = index;
  to_arm_.last = index;
}

void IoUring::queue_cancel(std::uint32_t index) noexcept {
  if (std::exchange(slots_[index].to_cancel, true)) return;
  slots_[index].next_to_cancel = nowhere;
  (to_cancel_.last == nowhere ? to_cancel_.first : slots_[to_cancel_.last].next_to_cancel) = index;
  to_cancel_.last = index;
}

void IoUring::cancel(Token token) noexcept {
  Slot* const slot = find(token);
  if (slot == nullptr || std::exchange(slot->operation.cancelling, true)) return;
  queue_cancel(index_of(token));
}

void IoUring::forget(std::initializer_list<Token> tokens) noexcept {
  const bool here = thread_ == this_thread_number();
  bool cancelled = false;
  for (const Token token : tokens) {
    Slot* const slot = find(token);
    if (slot == nullptr) continue;
    if (slot->operation.armed && here) {
      io_uring_sqe* const sqe = next_sqe();
      io_uring_prep_cancel64(sqe, token, 0);
      io_uring_sqe_set_data64(sqe, none);
      cancelled = true;
    }
    slots_.free_keeping(index_of(token));
  }
  // Submitted at once: until then the kernel would keep the descriptor open, and its port in use.
  if (cancelled) io_uring_submit_and_get_events(&ring_->uring);
}

io_uring_sqe* IoUring::next_sqe() noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_->uring);
  while (sqe == nullptr) {
    io_uring_submit(&ring_->uring);
    sqe = io_uring_get_sqe(&ring_->uring);
  }
  return sqe;
}

void IoUring::arm(std::uint32_t index) noexcept {
  if (slots_.at(index) == nullptr) return;
  Operation& operation = slots_[index].operation;
  if (std::exchange(operation.armed, true)) return;
  io_uring_sqe* const sqe = next_sqe();
  switch (operation.kind) {
    case Kind::receive:
      io_uring_prep_recv_multishot(sqe, operation.fd, nullptr, 0, 0);
      sqe->flags |= IOSQE_BUFFER_SELECT;
      sqe->buf_group = buffer_group;
      break;
    case Kind::poll: io_uring_prep_poll_add(sqe, operation.fd, operation.events); break;
    case Kind::poll_always: io_uring_prep_poll_multishot(sqe, operation.fd, operation.events); break;
  }
  io_uring_sqe_set_data64(sqe, token_of(index, slots_.generation(index)));
}

void IoUring::submit_queued() {
  for (std::uint32_t at = std::exchange(to_arm_, {}).first; at != nowhere; at = slots_[at].next_to_arm) {
    slots_[at].to_arm = false;
    arm(at);
  }
  for (std::uint32_t at = std::exchange(to_cancel_, {}).first; at != nowhere; at = slots_[at].next_to_cancel) {
    slots_[at].to_cancel = false;
    const Operation& operation = slots_[at].operation;
    if (slots_.at(at) == nullptr || !operation.cancelling) continue;
    io_uring_sqe* const sqe = next_sqe();
    io_uring_prep_cancel64(sqe, token_of(at, slots_.generation(at)), 0);
    io_uring_sqe_set_data64(sqe, none);
  }
}

// ---- Waiting ----

// Only the thread to which a ring is bound may enter it.
void IoUring::bind_to_this_thread() {
  if (thread_ != 0) {
    // Completions of the old ring are delivered. Operations that it has not completed are started again on the new
    // ring.
    deliver();
    auto fresh = std::make_unique<Ring>();
    if (const std::string reason = fresh->setup(); !reason.empty()) {
      throw std::system_error(std::make_error_code(std::errc::not_enough_memory), reason);
    }
    ring_ = std::move(fresh);
    to_arm_ = {};
    to_cancel_ = {};
    for (std::uint32_t i = 0; i < slots_.slots(); ++i) {
      slots_[i].to_arm = slots_[i].to_cancel = slots_[i].operation.armed = false;
    }
    slots_.each([this](std::size_t i, const Slot& slot) {
      queue_arm(static_cast<std::uint32_t>(i));
      if (slot.operation.cancelling) queue_cancel(static_cast<std::uint32_t>(i));
    });
  }
  if (const int error = ring_->enable(); error < 0) {
    throw std::system_error(-error, std::generic_category(), "enabling the ring");
  }
  thread_ = this_thread_number();
}

void IoUring::enter(Duration timeout) {
  if (thread_ != this_thread_number()) bind_to_this_thread();
  submit_queued();
  io_uring* const uring = &ring_->uring;
  if (timeout == Duration::zero() || io_uring_cq_ready(uring) != 0) {
    const unsigned flags = __atomic_load_n(uring->sq.kflags, __ATOMIC_RELAXED);
    if (io_uring_sq_ready(uring) != 0 || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
      io_uring_submit_and_get_events(uring);
    }
  } else {
    sleep_in_ring(uring, timeout);
  }
}

std::size_t IoUring::deliver() {
  std::size_t notified = 0;
  // Completions that arrive during this loop, for example because of forget(), wait for the next call.
  for (unsigned ready = io_uring_cq_ready(&ring_->uring); ready != 0; --ready) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_->uring, &cqe) != 0 || cqe == nullptr) break;
    const io_uring_cqe one = *cqe;
    io_uring_cqe_seen(&ring_->uring, cqe);
    notified += deliver_one(one.user_data, one.res, one.flags) ? 1 : 0;
  }
  return notified;
}

bool IoUring::deliver_one(Token token, int result, unsigned flags) {
  const bool has_buffer = (flags & IORING_CQE_F_BUFFER) != 0;
  const auto buffer = static_cast<unsigned short>(flags >> IORING_CQE_BUFFER_SHIFT);
  Slot* const slot = find(token);
  if (slot != nullptr) {
    const bool more = (flags & IORING_CQE_F_MORE) != 0;
    Handler& handler = *slot->operation.handler;
    if (!more) slots_.free_keeping(index_of(token));
    const Bytes data = has_buffer && result > 0
                           ? Bytes(ring_->memory + std::size_t{buffer} * buffer_bytes, static_cast<std::size_t>(result))
                           : Bytes();
    handler.on_completion({result, more, data});
  }
  if (has_buffer) recycle(buffer);
  return slot != nullptr;
}

void IoUring::recycle(unsigned short buffer) noexcept {
  io_uring_buf_ring_add(ring_->buffer_ring, ring_->memory + std::size_t{buffer} * buffer_bytes, buffer_bytes, buffer,
                        io_uring_buf_ring_mask(buffers), 0);
  io_uring_buf_ring_advance(ring_->buffer_ring, 1);
}

}  // namespace hawser::exec
