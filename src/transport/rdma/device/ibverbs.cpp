#include "transport/rdma/device/verbs.h"

#ifdef HAWSER_IBVERBS

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/decimal_text.h"
#include "base/descriptor.h"
#include "base/try.h"
#include "hawser/loop.h"
#include "transport/rdma/device/device_places.h"

namespace hawser::transport::rdma {
namespace {

std::unexpected<Error> failed(const std::string& what, int error) {
  std::string text = what + ": " + std::strerror(error);
  if (error == ENOMEM) text += " (the limit on locked memory may be too low: ulimit -l unlimited)";
  const bool full = error == ENOMEM || error == EMFILE || error == ENOSPC;
  return fail(Error::of_transport(full ? ErrorCode::overloaded : ErrorCode::unavailable, std::move(text)));
}

void set_nonblocking(int fd) noexcept { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const noexcept {
    destroy(object);
  }
};
using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using RdmaChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;

unsigned mtu_bytes(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

ibv_mtu mtu_code(unsigned bytes) noexcept {
  unsigned code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && mtu_bytes(static_cast<ibv_mtu>(code + 1)) <= bytes) ++code;
  return static_cast<ibv_mtu>(code);
}

WorkStatus status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return WorkStatus::success;
    case IBV_WC_WR_FLUSH_ERR: return WorkStatus::flushed;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return WorkStatus::retry_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR: return WorkStatus::rnr_exceeded;
    case IBV_WC_REM_ACCESS_ERR: return WorkStatus::remote_access;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR: return WorkStatus::remote_invalid;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR: return WorkStatus::remote_operation;
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR: return WorkStatus::fatal;
    default: return WorkStatus::local_error;
  }
}

// Empty for events that nothing handles.
std::optional<DeviceEventKind> kind_of(ibv_event_type type) noexcept {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return DeviceEventKind::queue_pair_fatal;
    case IBV_EVENT_QP_LAST_WQE_REACHED: return DeviceEventKind::last_receive_reached;
    case IBV_EVENT_CQ_ERR: return DeviceEventKind::completion_queue_overrun;
    case IBV_EVENT_SRQ_ERR: return DeviceEventKind::shared_receive_queue_broken;
    case IBV_EVENT_SRQ_LIMIT_REACHED: return DeviceEventKind::shared_receive_queue_low;
    case IBV_EVENT_DEVICE_FATAL: return DeviceEventKind::device_fatal;
    case IBV_EVENT_PORT_ERR: return DeviceEventKind::port_down;
    case IBV_EVENT_PORT_ACTIVE: return DeviceEventKind::port_up;
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_LID_CHANGE: return DeviceEventKind::addresses_changed;
    default: return std::nullopt;
  }
}

std::optional<DeviceEvent> translate(const ibv_async_event& event) noexcept {
  const std::optional<DeviceEventKind> kind = kind_of(event.event_type);
  if (!kind) return std::nullopt;
  DeviceEvent translated;
  translated.kind = *kind;
  switch (*kind) {
    case DeviceEventKind::queue_pair_fatal:
    case DeviceEventKind::last_receive_reached: translated.queue_pair = event.element.qp->qp_num; break;
    case DeviceEventKind::completion_queue_overrun: translated.queue = event.element.cq->cq_context; break;
    case DeviceEventKind::shared_receive_queue_broken:
    case DeviceEventKind::shared_receive_queue_low: translated.queue = event.element.srq->srq_context; break;
    case DeviceEventKind::port_down:
    case DeviceEventKind::port_up:
    case DeviceEventKind::addresses_changed: translated.port = static_cast<unsigned>(event.element.port_num); break;
    case DeviceEventKind::device_fatal: break;
  }
  return translated;
}

class VerbsRegion final : public MemoryRegion {
 public:
  explicit VerbsRegion(ibv_mr* region) noexcept : region_(region) {}
  ~VerbsRegion() override { ibv_dereg_mr(region_); }
  std::uint32_t local_key() const noexcept override { return region_->lkey; }
  std::uint32_t remote_key() const noexcept override { return region_->rkey; }

 private:
  ibv_mr* const region_;
};

class VerbsCompletions final : public CompletionQueue {
 public:
  VerbsCompletions(RdmaChannel channel, ibv_cq* queue) : channel_(std::move(channel)), queue_(queue) {
    queue_->cq_context = static_cast<CompletionQueue*>(this);  // Events carry it.
  }
  ~VerbsCompletions() override {
    take_events();
    if (events_ != 0) ibv_ack_cq_events(queue_, events_);
    ibv_destroy_cq(queue_);
  }
  ibv_cq* queue() const noexcept { return queue_; }

  std::size_t poll(std::span<Completion> out) override {
    std::size_t total = 0;
    while (total < out.size()) {
      std::array<ibv_wc, 32> polled;
      const int wanted = static_cast<int>(std::min(polled.size(), out.size() - total));
      const int count = ibv_poll_cq(queue_, wanted, polled.data());
      for (int i = 0; i < count; ++i) {
        const ibv_wc& from = polled[static_cast<std::size_t>(i)];
        Completion& to = out[total++];
        to = {.id = from.wr_id, .queue_pair = from.qp_num, .status = status_of(from.status)};
        if (from.status != IBV_WC_SUCCESS) continue;
        to.received = (from.opcode & IBV_WC_RECV) != 0;
        to.has_immediate = (from.wc_flags & IBV_WC_WITH_IMM) != 0;
        to.opcode = opcode_of(from.opcode, to.has_immediate);
        to.bytes = to.received ? from.byte_len : 0;
        to.immediate = to.has_immediate ? ntohl(from.imm_data) : 0;
      }
      if (count < wanted) break;
    }
    return total;
  }

  void watch(Loop& loop, exec::Watcher& watcher) override { loop.poller().watch(channel_->fd, watcher); }
  void unwatch(Loop& loop, exec::Watcher& watcher) noexcept override { loop.poller().unwatch(channel_->fd, watcher); }

  Result<void> arm(bool solicited_only) override {
    take_events();
    if (const int error = ibv_req_notify_cq(queue_, solicited_only ? 1 : 0); error != 0) {
      return failed("ibv_req_notify_cq", error);
    }
    return {};
  }

 private:
  // Acknowledging takes a lock, so it is done for many events at once. All must be acknowledged before the queue is
  // destroyed.
  static constexpr unsigned unacknowledged_max = 256;

  static Opcode opcode_of(ibv_wc_opcode opcode, bool immediate) noexcept {
    switch (opcode) {
      case IBV_WC_RDMA_WRITE: return Opcode::write;
      case IBV_WC_RDMA_READ: return Opcode::read;
      case IBV_WC_RECV: return immediate ? Opcode::send_with_immediate : Opcode::send;
      case IBV_WC_RECV_RDMA_WITH_IMM: return Opcode::write_with_immediate;
      default: return Opcode::send;
    }
  }

  void take_events() noexcept {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ++events_;
    if (events_ >= unacknowledged_max) ibv_ack_cq_events(queue_, std::exchange(events_, 0));
  }

  const RdmaChannel channel_;
  ibv_cq* const queue_;
  unsigned events_ = 0;
};

Result<void> post_receives(std::span<const ReceiveRequest> requests, auto&& post) {
  while (!requests.empty()) {
    constexpr std::size_t batch_max = 32;
    std::array<ibv_recv_wr, batch_max> work;
    std::array<ibv_sge, batch_max> segments;
    const std::size_t count = std::min(batch_max, requests.size());
    for (std::size_t i = 0; i < count; ++i) {
      const Segment& segment = requests[i].segment;
      segments[i] = {reinterpret_cast<std::uintptr_t>(segment.data), segment.bytes, segment.local_key};
      work[i] = {requests[i].id, i + 1 < count ? &work[i + 1] : nullptr, &segments[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = post(work.data(), &bad); error != 0) return failed("posting receives", error);
    requests = requests.subspan(count);
  }
  return {};
}

class VerbsSharedReceives final : public SharedReceiveQueue {
 public:
  explicit VerbsSharedReceives(ibv_srq* queue) noexcept : queue_(queue) {
    queue_->srq_context = static_cast<SharedReceiveQueue*>(this);  // Events carry it.
  }
  ~VerbsSharedReceives() override { ibv_destroy_srq(queue_); }
  ibv_srq* queue() const noexcept { return queue_; }

  Result<void> post_receive(std::span<const ReceiveRequest> requests) override {
    return post_receives(requests,
                         [this](ibv_recv_wr* work, ibv_recv_wr** bad) { return ibv_post_srq_recv(queue_, work, bad); });
  }
  Result<void> set_limit(unsigned receives) override {
    ibv_srq_attr attributes{};
    attributes.srq_limit = receives;
    if (const int error = ibv_modify_srq(queue_, &attributes, IBV_SRQ_LIMIT); error != 0) {
      return failed("ibv_modify_srq", error);
    }
    return {};
  }

 private:
  ibv_srq* const queue_;
};

class VerbsPair final : public QueuePair {
 public:
  VerbsPair(ibv_qp* pair, const ibv_qp_cap& granted) : pair_(pair), granted_(granted) {}
  ~VerbsPair() override { ibv_destroy_qp(pair_); }

  std::uint32_t number() const noexcept override { return pair_->qp_num; }
  std::size_t inline_bytes() const noexcept override { return granted_.max_inline_data; }
  std::size_t send_requests() const noexcept override { return granted_.max_send_wr; }

  Result<void> initialise(unsigned port, unsigned pkey_index) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = static_cast<std::uint16_t>(pkey_index);
    attributes.port_num = static_cast<std::uint8_t>(port);
    attributes.qp_access_flags = 0;
    return modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  }

  Result<void> connect(const QueuePairRoute& route) override {
    ibv_qp_attr receiving{};
    receiving.qp_state = IBV_QPS_RTR;
    receiving.path_mtu = mtu_code(route.mtu_bytes);
    receiving.dest_qp_num = route.peer_queue_pair;
    receiving.rq_psn = route.rq_psn;
    receiving.max_dest_rd_atomic = static_cast<std::uint8_t>(route.max_dest_rd_atomic);
    receiving.min_rnr_timer = static_cast<std::uint8_t>(route.min_rnr_timer);
    receiving.qp_access_flags = access_flags(route.access);
    ibv_ah_attr& address = receiving.ah_attr;
    address.dlid = route.peer_lid;
    address.sl = static_cast<std::uint8_t>(route.service_level);
    address.port_num = static_cast<std::uint8_t>(route.port);
    if (route.global) {
      address.is_global = 1;
      std::memcpy(address.grh.dgid.raw, route.peer_gid.bytes.data(), route.peer_gid.bytes.size());
      address.grh.sgid_index = static_cast<std::uint8_t>(route.gid_index);
      address.grh.hop_limit = static_cast<std::uint8_t>(route.hop_limit);
      address.grh.traffic_class = static_cast<std::uint8_t>(route.traffic_class);
    }
    TRY(modify(receiving,
               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS,
               "RTR"));
    ibv_qp_attr sending{};
    sending.qp_state = IBV_QPS_RTS;
    sending.sq_psn = route.sq_psn;
    sending.timeout = static_cast<std::uint8_t>(route.ack_timeout);
    sending.retry_cnt = static_cast<std::uint8_t>(route.retries);
    sending.rnr_retry = static_cast<std::uint8_t>(route.rnr_retries);
    sending.max_rd_atomic = static_cast<std::uint8_t>(route.max_rd_atomic);
    return modify(
        sending,
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
        "RTS");
  }

  void allow(Access access) noexcept override {
    ibv_qp_attr attributes{};
    attributes.qp_access_flags = access_flags(access);
    ibv_modify_qp(pair_, &attributes, IBV_QP_ACCESS_FLAGS);
  }

  Result<void> post_send(std::span<const SendRequest> requests) override {
    constexpr std::size_t batch_max = 32;
    constexpr std::size_t segments_max = 64;
    accepted_ = 0;
    while (!requests.empty()) {
      std::array<ibv_send_wr, batch_max> work;
      std::array<ibv_sge, segments_max> segments;
      std::size_t count = 0;
      std::size_t used = 0;
      for (const SendRequest& request : requests) {
        if (count == batch_max || used + request.segments.size() > segments_max) break;
        ibv_send_wr& to = work[count];
        std::memset(&to, 0, sizeof to);
        to.wr_id = request.id;
        to.sg_list = &segments[used];
        to.num_sge = static_cast<int>(request.segments.size());
        to.opcode = opcode_of(request.opcode);
        to.send_flags = (request.inlined ? unsigned{IBV_SEND_INLINE} : 0U) |
                        (request.signalled ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                        (request.solicited ? unsigned{IBV_SEND_SOLICITED} : 0U) |
                        (request.fenced ? unsigned{IBV_SEND_FENCE} : 0U);
        to.imm_data = htonl(request.immediate);
        to.wr.rdma.remote_addr = request.remote_address;
        to.wr.rdma.rkey = request.remote_key;
        for (const Segment& segment : request.segments) {
          segments[used++] = {reinterpret_cast<std::uintptr_t>(segment.data), segment.bytes, segment.local_key};
        }
        if (count != 0) work[count - 1].next = &to;
        ++count;
      }
      assert(count != 0);
      ibv_send_wr* bad = nullptr;
      if (const int error = ibv_post_send(pair_, work.data(), &bad); error != 0) {
        accepted_ += bad == nullptr ? count : static_cast<std::size_t>(bad - work.data());
        return failed("posting sends", error);
      }
      accepted_ += count;
      requests = requests.subspan(count);
    }
    return {};
  }
  std::size_t accepted() const noexcept override { return accepted_; }

  Result<void> post_receive(std::span<const ReceiveRequest> requests) override {
    return post_receives(requests,
                         [this](ibv_recv_wr* work, ibv_recv_wr** bad) { return ibv_post_recv(pair_, work, bad); });
  }

  void fail() noexcept override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(pair_, &attributes, IBV_QP_STATE);
  }

 private:
  static unsigned access_flags(Access access) noexcept {
    return (access.remote_read ? unsigned{IBV_ACCESS_REMOTE_READ} : 0U) |
           (access.remote_write ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0U);
  }

  static ibv_wr_opcode opcode_of(Opcode opcode) noexcept {
    switch (opcode) {
      case Opcode::send: return IBV_WR_SEND;
      case Opcode::send_with_immediate: return IBV_WR_SEND_WITH_IMM;
      case Opcode::write: return IBV_WR_RDMA_WRITE;
      case Opcode::write_with_immediate: return IBV_WR_RDMA_WRITE_WITH_IMM;
      case Opcode::read: return IBV_WR_RDMA_READ;
    }
    return IBV_WR_SEND;
  }

  Result<void> modify(ibv_qp_attr& attributes, int mask, const char* state) {
    const int error = ibv_modify_qp(pair_, &attributes, mask);
    if (error == 0) return {};
    return failed(std::string("moving a queue pair to ") + state, error);
  }

  ibv_qp* const pair_;
  const ibv_qp_cap granted_;
  std::size_t accepted_ = 0;  // Requests of the last batch.
};

class VerbsDevice final : public Device {
 public:
  VerbsDevice(Context context, Domain domain, const ibv_device_attr& attributes)
      : name_(ibv_get_device_name(context->device)), context_(std::move(context)), domain_(std::move(domain)) {
    ports_ = attributes.phys_port_cnt;
    limits_.queue_pairs = static_cast<std::size_t>(attributes.max_qp);
    limits_.queue_pair_requests = static_cast<std::size_t>(attributes.max_qp_wr);
    limits_.segments = static_cast<std::size_t>(attributes.max_sge);
    if (attributes.max_sge_rd > 0) {
      limits_.segments = std::min(limits_.segments, static_cast<std::size_t>(attributes.max_sge_rd));
    }
    limits_.completion_queue_entries = static_cast<std::size_t>(attributes.max_cqe);
    limits_.shared_receive_requests = attributes.max_srq > 0 ? static_cast<std::size_t>(attributes.max_srq_wr) : 0;
    limits_.memory_regions = static_cast<std::size_t>(attributes.max_mr);
    limits_.memory_region_bytes = attributes.max_mr_size;
    limits_.reads_outstanding =
        static_cast<std::size_t>(std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom));
    set_nonblocking(context_->async_fd);
  }

  const std::string& name() const noexcept override { return name_; }
  const DeviceLimits& limits() const noexcept override { return limits_; }
  unsigned ports() const noexcept override { return ports_; }

  Result<PortStatus> port(unsigned number) override {
    ibv_port_attr attributes{};
    if (const int error = ibv_query_port(context_.get(), static_cast<std::uint8_t>(number), &attributes); error != 0) {
      return failed("asking for port " + std::to_string(number) + " of " + name_, error);
    }
    return PortStatus{.number = number,
                      .active = attributes.state == IBV_PORT_ACTIVE,
                      .ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET,
                      .lid = attributes.lid,
                      .mtu_bytes = mtu_bytes(attributes.active_mtu),
                      .mtu_bytes_max = mtu_bytes(attributes.max_mtu),
                      .gigabits_per_second = lane_speed(attributes.active_speed) * lanes(attributes.active_width)};
  }

  Result<std::vector<GidEntry>> gids(unsigned port) override {
    std::vector<ibv_gid_entry> table(256);
    const ssize_t count = ibv_query_gid_table(context_.get(), table.data(), table.size(), 0);
    if (count < 0) return failed("asking for the addresses of " + name_, static_cast<int>(-count));
    table.resize(static_cast<std::size_t>(count));
    std::vector<GidEntry> found;
    for (const ibv_gid_entry& from : table) {
      if (from.port_num != port) continue;
      GidEntry to{.index = from.gid_index,
                  .gid = {},
                  .type = from.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::roce_v2
                          : from.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::roce_v1
                                                                  : GidType::infiniband};
      std::memcpy(to.gid.bytes.data(), from.gid.raw, to.gid.bytes.size());
      if (!to.gid.zero()) found.push_back(to);
    }
    return found;
  }

  std::vector<RdmaCounter> counters(unsigned port) override {
    std::vector<RdmaCounter> found;
    const std::filesystem::path device(context_->device->ibdev_path);
    const std::filesystem::path of_port = device / "ports" / std::to_string(port);
    for (const auto& folder : {device / "hw_counters", of_port / "hw_counters", of_port / "counters"}) {
      std::error_code error;
      for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        std::uint64_t value = 0;
        if (std::ifstream(entry.path()) >> value) found.push_back({entry.path().filename().string(), value});
      }
    }
    return found;
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableBytes memory, Access access) override {
    ibv_mr* const region =
        with_flags(access, [&](int flags) { return ibv_reg_mr(domain_.get(), memory.data(), memory.size(), flags); });
    if (region == nullptr) {
      return failed("registering " + count_text(memory.size(), "byte") + " with " + name_, errno);
    }
    return std::make_unique<VerbsRegion>(region);
  }

  Result<std::unique_ptr<MemoryRegion>> register_dmabuf(int descriptor, std::uint64_t offset, MutableBytes addresses,
                                                        Access access) override {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(addresses.data()));
    ibv_mr* const region = with_flags(access, [&](int flags) {
      return ibv_reg_dmabuf_mr(domain_.get(), offset, addresses.size(), address, descriptor, flags);
    });
    if (region != nullptr) return std::make_unique<VerbsRegion>(region);
    const int error = errno;
    auto refused = failed("registering " + count_text(addresses.size(), "byte") + " at " + std::to_string(offset) +
                              " of the dma-buf descriptor " + std::to_string(descriptor) + " with " + name_,
                          error);
    if (error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT) {
      refused.error().text +=
          " (the driver of the device, or the kernel, does not register dma-buf descriptors: move "
          "the bytes through RegisteredBuffer::allocate())";
    }
    return refused;
  }

  Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::size_t entries) override {
    RdmaChannel channel(ibv_create_comp_channel(context_.get()));
    if (channel == nullptr) return failed("making a completion channel", errno);
    set_nonblocking(channel->fd);
    const unsigned vector = next_vector_.fetch_add(1, std::memory_order_relaxed);
    ibv_cq* const queue = ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, channel.get(),
                                        static_cast<int>(vector % static_cast<unsigned>(context_->num_comp_vectors)));
    if (queue == nullptr) {
      return failed("making a completion queue of " + count_text(entries, "entry"), errno);
    }
    return std::make_unique<VerbsCompletions>(std::move(channel), queue);
  }

  Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(std::size_t requests) override {
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = static_cast<unsigned>(requests);
    wanted.attr.max_sge = 1;
    ibv_srq* const queue = ibv_create_srq(domain_.get(), &wanted);
    if (queue == nullptr) {
      return failed("making a shared receive queue of " + count_text(requests, "receive"), errno);
    }
    return std::make_unique<VerbsSharedReceives>(queue);
  }

  Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options, unsigned port) override {
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = wanted.recv_cq = static_cast<VerbsCompletions*>(options.completions)->queue();
    if (options.shared_receives != nullptr) {
      wanted.srq = static_cast<VerbsSharedReceives*>(options.shared_receives)->queue();
    }
    unsigned inlined = std::min(options.inline_bytes, inline_max_.load(std::memory_order_relaxed));
    ibv_qp* pair = nullptr;
    ibv_qp_cap granted{};
    // A device reports its limit for inline data only by refusing more.
    while (true) {
      wanted.cap = {.max_send_wr = options.send_requests,
                    .max_recv_wr = options.shared_receives != nullptr ? 0 : options.receive_requests,
                    .max_send_sge = options.send_segments,
                    .max_recv_sge = options.shared_receives != nullptr ? 0U : 1U,
                    .max_inline_data = inlined};
      pair = ibv_create_qp(domain_.get(), &wanted);
      granted = wanted.cap;
      if (pair != nullptr || errno != EINVAL || inlined == 0) break;
      inlined = inlined / 2;
      inline_max_.store(inlined, std::memory_order_relaxed);
    }
    if (pair == nullptr) return failed("making a queue pair on " + name_, errno);
    auto made = std::make_unique<VerbsPair>(pair, granted);
    TRY(made->initialise(port, options.pkey_index));
    return made;
  }

  void watch_events(Loop& loop, exec::Watcher& watcher) override { loop.poller().watch(context_->async_fd, watcher); }
  void unwatch_events(Loop& loop, exec::Watcher& watcher) noexcept override {
    loop.poller().unwatch(context_->async_fd, watcher);
  }

  std::optional<DeviceEvent> next_event() override {
    ibv_async_event event{};
    while (ibv_get_async_event(context_.get(), &event) == 0) {
      const std::optional<DeviceEvent> translated = translate(event);
      ibv_ack_async_event(&event);
      if (translated) return translated;
    }
    return std::nullopt;
  }

 private:
  // Registers memory by `registers(flags)`. Relaxed ordering is optional, but some drivers refuse flags that they do
  // not know.
  template <class F>
  static ibv_mr* with_flags(Access access, F registers) {
    const unsigned flags = unsigned{IBV_ACCESS_LOCAL_WRITE} |
                           (access.remote_read ? unsigned{IBV_ACCESS_REMOTE_READ} : 0U) |
                           (access.remote_write ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0U) |
                           (access.relaxed_ordering ? unsigned{IBV_ACCESS_RELAXED_ORDERING} : 0U);
    ibv_mr* const region = registers(static_cast<int>(flags));
    if (region != nullptr || !access.relaxed_ordering || (errno != EOPNOTSUPP && errno != EINVAL)) return region;
    return registers(static_cast<int>(flags & ~unsigned{IBV_ACCESS_RELAXED_ORDERING}));
  }

  // Returns Gb/s of one lane by the code of the InfiniBand specification.
  static double lane_speed(unsigned code) noexcept {
    switch (code) {
      case 1: return 2.5;
      case 2: return 5;
      case 4:
      case 8: return 10;
      case 16: return 14;
      case 32: return 25;
      case 64: return 50;
      case 128: return 100;
      default: return 0;
    }
  }
  static double lanes(unsigned code) noexcept {
    switch (code) {
      case 1: return 1;
      case 2: return 4;
      case 4: return 8;
      case 8: return 12;
      case 16: return 2;
      default: return 0;
    }
  }

  const std::string name_;
  const Context context_;
  const Domain domain_;
  DeviceLimits limits_;
  unsigned ports_ = 0;
  std::atomic<unsigned> next_vector_{0};
  std::atomic<unsigned> inline_max_{UINT32_MAX};
};

// The kernel's list of devices. It is kept while one of them is being opened or named.
class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)), error_(errno) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  Result<std::span<ibv_device*>> devices() const {
    if (list_ == nullptr) {
      return failed("there are no RDMA devices here (is the kernel module ib_uverbs loaded?)", error_);
    }
    return std::span(list_, static_cast<std::size_t>(count_));
  }

 private:
  int count_ = 0;
  ibv_device** list_;
  int error_;
};

class SystemVerbs final : public Verbs {
 public:
  Result<std::vector<std::string>> devices() override {
    const DeviceList list;
    TRY(
    const auto& devices, list.devices());
    std::vector<std::string> names;
    for (ibv_device* device : devices) names.emplace_back(ibv_get_device_name(device));
    if (names.empty()) {
      return fail(Error::of_transport(
          ErrorCode::unavailable,
          "this machine has no RDMA device: install the card's driver, or load Soft-RoCE (modprobe rdma_rxe; "
          "rdma link add rxe0 type rxe netdev DEVICE)"));
    }
    if (names.size() > 1) DevicePlaces().sort(names, allowed_processors());
    return names;
  }

  Result<std::shared_ptr<Device>> open(const std::string& name) override {
    open_standard_descriptors();  // libibverbs makes descriptors of its own.
    const DeviceList list;
    TRY(
    const auto& devices, list.devices());
    for (ibv_device* device : devices) {
      if (name != ibv_get_device_name(device)) continue;
      Context context(ibv_open_device(device));
      if (context == nullptr) return failed("opening " + name, errno);
      Domain domain(ibv_alloc_pd(context.get()));
      if (domain == nullptr) return failed("making a protection domain on " + name, errno);
      ibv_device_attr attributes{};
      if (const int error = ibv_query_device(context.get(), &attributes); error != 0) {
        return failed("asking for the limits of " + name, error);
      }
      return std::make_shared<VerbsDevice>(std::move(context), std::move(domain), attributes);
    }
    return fail(Error::of_transport(ErrorCode::unavailable,
                                    "this machine has no RDMA device named " + name + ": see rdma link"));
  }

  Result<void> make_fork_safe() override {
    // It does nothing, and succeeds, if the kernel copies pinned pages when a process forks.
    const int error = ibv_fork_init();
    if (error == 0) return {};
    return fail(
        Error::of_transport(ErrorCode::unavailable,
                            std::string("ibv_fork_init: ") + std::strerror(error) +
                                " (call it when the process starts, before another library registers memory, or set "
                                "RdmaOptions::fork_safe to false in a process that never forks)"));
  }
};

}  // namespace

std::shared_ptr<Verbs> system_verbs() { return std::make_shared<SystemVerbs>(); }

}  // namespace hawser::transport::rdma

#else

namespace hawser::transport::rdma {
namespace {

class NoVerbs final : public Verbs {
 public:
  Result<std::vector<std::string>> devices() override { return hawser::fail(missing()); }
  Result<std::shared_ptr<Device>> open(const std::string&) override { return hawser::fail(missing()); }

 private:
  static Error missing() {
    return Error::of_transport(
        ErrorCode::unavailable,
        "built without libibverbs: install its development package (libibverbs-dev) and build again");
  }
};

}  // namespace

std::shared_ptr<Verbs> system_verbs() { return std::make_shared<NoVerbs>(); }

}  // namespace hawser::transport::rdma

#endif
