#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/conformance/loop_stream_testing.h"
#include "transport/conformance/transport_testing.h"
#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/core/ucp_library.h"
#include "transport/ucx/ucx_transport.h"

// UCX's put, get and atomics write and read any address of a process whose context has them (decision 55). Hawser's
// contexts must not have them.
namespace hawser::transport {
namespace {

UcxOptions options_of(const char* tls) {
  return {.tls = tls, .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address};
}

// A UCX context with one worker, made with bare functions of libucp.
class BareUcx {
 public:
  BareUcx(const UcpLibrary& ucp, const char* tls, std::uint64_t features) : ucp_(ucp) {
    library_ = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
    ucp_config_t* config = nullptr;
    EXPECT_EQ(ucp_.config_read(nullptr, nullptr, &config), UCS_OK);
    for (const auto& [name, value] : ucx_settings(options_of(tls), ucp_.version)) {
      EXPECT_EQ(ucp_.config_modify(config, name.c_str(), value.c_str()), UCS_OK) << name;
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = features;
    EXPECT_EQ(ucp_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_), UCS_OK);
    ucp_.config_release(config);
    ucp_worker_params_t of_worker{};
    of_worker.field_mask = UCP_WORKER_PARAM_FIELD_FLAGS;
    of_worker.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
    EXPECT_EQ(ucp_.worker_create(context_, &of_worker, &worker_), UCS_OK);
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.cb = &BareUcx::drop;
    EXPECT_EQ(ucp_.worker_set_am_recv_handler(worker_, &handler), UCS_OK);
  }
  BareUcx(const BareUcx&) = delete;
  BareUcx& operator=(const BareUcx&) = delete;
  ~BareUcx() {
    // An assertion in libucp fails if a worker with a get that has no answer is destroyed.
    if (unanswered) return;
    ucp_.worker_destroy(worker_);
    ucp_.cleanup(context_);
    ::dlclose(library_);
  }

  std::vector<std::byte> address() const {
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    EXPECT_EQ(ucp_.worker_query(worker_, &attributes), UCS_OK);
    const auto* const bytes = reinterpret_cast<const std::byte*>(attributes.address);
    std::vector<std::byte> copy(bytes, bytes + attributes.address_length);
    ucp_.worker_release_address(worker_, attributes.address);
    return copy;
  }
  void connect(const std::vector<std::byte>& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ASSERT_EQ(ucp_.ep_create(worker_, &params, &endpoint_), UCS_OK);
    // A key that names no memory domain and no memory, as any peer can make it up: an u64 and the type of host memory.
    // With it, libucp sends the address of the operation in an active message of its own.
    const std::array<std::byte, 16> forged{};
    ASSERT_EQ(function<decltype(&::ucp_ep_rkey_unpack)>("ucp_ep_rkey_unpack")(endpoint_, forged.data(), &key_), UCS_OK);
  }
  // Reads `from`, adds 1 to `number` and overwrites `to` with 2, at the peer.
  void attack(const std::uint64_t* from, const std::uint64_t* number, const std::uint64_t* to) {
    const auto address = [](const std::uint64_t* at) {
      return static_cast<std::uint64_t>(std::bit_cast<std::uintptr_t>(at));
    };
    ucp_request_param_t params{};
    const auto get = function<decltype(&::ucp_get_nbx)>("ucp_get_nbx");
    const auto put = function<decltype(&::ucp_put_nbx)>("ucp_put_nbx");
    const auto atomic = function<decltype(&::ucp_atomic_op_nbx)>("ucp_atomic_op_nbx");
    EXPECT_FALSE(UCS_PTR_IS_ERR(get(endpoint_, &read, sizeof read, address(from), key_, &params)));
    EXPECT_FALSE(UCS_PTR_IS_ERR(put(endpoint_, &two_, sizeof two_, address(to), key_, &params)));
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_contig(sizeof one_);
    EXPECT_FALSE(UCS_PTR_IS_ERR(atomic(endpoint_, UCP_ATOMIC_OP_ADD, &one_, 1, address(number), key_, &params)));
  }
  void send(const UcxHeader& header, std::string_view data) {
    header.store(header_.data());
    sent_ = data;
    const ucp_request_param_t params{};
    EXPECT_FALSE(UCS_PTR_IS_ERR(
        ucp_.am_send_nbx(endpoint_, 0, header_.data(), header_.size(), sent_.data(), sent_.size(), &params)));
  }
  void progress() { ucp_.worker_progress(worker_); }

  std::uint64_t read = 0;
  bool unanswered = false;

 private:
  static ucs_status_t drop(void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) {
    return UCS_OK;
  }
  template <class Function>
  Function function(const char* name) const {
    const auto found = reinterpret_cast<Function>(::dlsym(library_, name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }

  const UcpLibrary& ucp_;
  void* library_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  const std::uint64_t one_ = 1;
  const std::uint64_t two_ = 2;
  std::array<std::byte, UcxHeader::bytes> header_{};
  std::string sent_;
};

constexpr std::uint64_t remote_access = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;

struct QuietSink final : StreamSink {
  MutableBytes receive_space() override { return space; }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error&) override {}
  std::array<std::byte, 16> space{};
};

class UcxRemoteAccess : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto there = ucx_report(options_of(GetParam())); !there) GTEST_SKIP() << there.error().text;
    ucp_ = *UcpLibrary::load();
  }
  const UcpLibrary* ucp_ = nullptr;
  // Memory of the victim, which nobody has registered.
  alignas(64) std::uint64_t secret_ = 4711;
  std::uint64_t counter_ = 10;
  std::uint64_t word_ = 100;
};
INSTANTIATE_TEST_SUITE_P(Transports, UcxRemoteAccess, ::testing::Values("tcp,self", "posix,self"), [](const auto& one) {
  return std::string(one.param).substr(0, std::string(one.param).find(','));
});

// The fact on which decision 55 rests. If a version of UCX fails this test, that version checks the addresses of peers,
// and the decision can be reconsidered.
TEST_P(UcxRemoteAccess, AContextWithPutAndGetGivesAwayAllMemory) {
  BareUcx victim(*ucp_, GetParam(), remote_access);
  BareUcx attacker(*ucp_, GetParam(), remote_access);
  attacker.connect(victim.address());
  attacker.attack(&secret_, &counter_, &word_);
  const auto value = [](const std::uint64_t& of) { return *const_cast<const volatile std::uint64_t*>(&of); };
  for (int i = 0; i < 10'000'000 && (attacker.read != 4711 || value(counter_) != 11 || value(word_) != 2); ++i) {
    victim.progress();
    attacker.progress();
  }
  EXPECT_EQ(attacker.read, 4711U);
  EXPECT_EQ(value(counter_), 11U);
  EXPECT_EQ(value(word_), 2U);
}

TEST_P(UcxRemoteAccess, APeerReachesNoMemoryOfHawser) {
  Loop loop({.log = no_log()});
  auto transport_worker = *make_ucx_transport(options_of(GetParam()))->attach(loop);
  auto pending = *finish_half(loop, transport_worker->select(transport_worker->offer(), {1 << 20, 1 << 20}));
  const Result<UcxParameters> server = UcxParameters::load(pending->parameters());
  ASSERT_TRUE(server.has_value());
  BareUcx attacker(*ucp_, GetParam(), remote_access);
  const UcxParameters own{.peer = {.token = 1, .window_bytes = 1 << 20, .rendezvous_bytes_min = 1 << 15},
                          .address = attacker.address()};
  ASSERT_TRUE(finish_connect(loop, *pending, own.store()).has_value());
  QuietSink silent;
  auto streams = LoopStream::make_pair();
  streams.first->start(loop, silent);
  streams.first->pause();
  streams.second->start(loop, silent);
  auto connection = pending->open(std::move(streams.first));
  TransportSink sink;
  sink.connection = connection.get();
  connection->start(sink);
  attacker.unanswered = true;
  attacker.connect(server->address);
  ASSERT_FALSE(HasFatalFailure());
  attacker.attack(&secret_, &counter_, &word_);
  // The connection reports a violation that was sent later. So everything before it has arrived.
  const auto arrives = [&](const UcxHeader& header, std::string_view data) {
    attacker.send(header, data);
    for (int i = 0; i < 300'000 && sink.closed.empty(); ++i) {
      attacker.progress();
      loop.run([](Loop& on) -> Task<void> { co_await on.sleep(std::chrono::microseconds(100)); }(loop));
    }
  };
  arrives({.token = server->peer.token, .kind = UcxHeader::Kind::packed}, std::string(24, '\xff'));
  ASSERT_EQ(sink.closed.size(), 1U);
  EXPECT_EQ(sink.closed[0].code, ErrorCode::protocol_error) << sink.closed[0].text;
  EXPECT_EQ(attacker.read, 0U);
  EXPECT_EQ(counter_, 10U);
  EXPECT_EQ(word_, 100U);
  loop.run([](std::unique_ptr<Connection>& one) -> Task<void> {
    one.reset();
    co_return;
  }(connection));
}

}  // namespace
}  // namespace hawser::transport
