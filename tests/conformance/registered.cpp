#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/rdma.h"
#include "tests/conformance/backend.h"

// The same program with registered memory over every transport: without copies if the device knows the memory, and as
// ordinary memory otherwise.
namespace hawser::conformance {

inline std::uint64_t sum_of_attachment(Context& context) {
  std::uint64_t sum = 0;
  for (const std::byte one : context.attachment()) sum = sum * 31 + std::to_integer<std::uint64_t>(one);
  return sum;
}
inline std::uint64_t sum_of(Bytes bytes) {
  std::uint64_t sum = 0;
  for (const std::byte one : bytes) sum = sum * 31 + std::to_integer<std::uint64_t>(one);
  return sum;
}

// Memory that the server sends along with its replies.
class Shelf {
 public:
  explicit Shelf(RegisteredBuffer buffer) : buffer_(std::move(buffer)) {
    const std::string text = text_of(buffer_.size(), 'G');
    std::memcpy(buffer_.memory().data(), text.data(), text.size());
  }
  void part(Context& context, std::uint64_t offset, std::uint64_t bytes) {
    context.set_attachment(buffer_.share(offset, bytes));
  }
  Bytes memory() const { return buffer_.memory(); }
  bool registered() const { return buffer_.registered(); }
  bool in_use() const { return buffer_.in_use(); }

 private:
  RegisteredBuffer buffer_;
};

TEST_P(Conformance, LargeBuffersAreAllocatedInTheBackground) {
  const std::unique_ptr<Server> server = make_server();
  server->register_handler<sum_of_attachment>();
  run_connected(*server, {}, [](Server&, Client& client) -> Task<void> {
    for (const unsigned threads : {0U, 1U, 3U}) {
      const std::size_t bytes = (std::size_t{130} << 20) + 1;
      BufferAllocation allocation = RegisteredBuffer::allocate_in_background(client, bytes, {.threads = threads});
      auto made = co_await allocation.result();
      REQUIRE_OK(made);
      EXPECT_TRUE(allocation.done());
      EXPECT_EQ(made->size(), (std::size_t{130} << 20) + 4096);
      EXPECT_EQ(allocation.ready_bytes(), made->size());
      EXPECT_EQ(made->registered(), client.transport() == "rdma" || client.transport() == "ucx");
      made->memory().back() = std::byte{7};
      const CallOptions options{.attachment = made->memory().last(4096)};
      auto sum = co_await client.call<sum_of_attachment>(options);
      EXPECT_EQ(sum, 7U);
      auto again = co_await allocation.result();
      EXPECT_ERROR(again, invalid_argument, "has been taken");
    }
    BufferAllocation nothing = RegisteredBuffer::allocate_in_background(client, 0);
    auto none = co_await nothing.result();
    EXPECT_ERROR(none, invalid_argument, "one byte or more");
    BufferAllocation absurd = RegisteredBuffer::allocate_in_background(client, SIZE_MAX / 2);
    auto refused = co_await absurd.result();
    EXPECT_ERROR(refused, overloaded, "there is no memory");
    // A task that is destroyed, and allocations that are given up at any time.
    for (int i = 0; i < 3; ++i) {
      BufferAllocation given_up = RegisteredBuffer::allocate_in_background(client, std::size_t{200} << 20);
      if (i == 1) given_up = {};
      auto waiting = given_up.result();
      Scope scope;
      scope.spawn(
          [](Task<Result<RegisteredBuffer>> one) -> Task<void> { (void)co_await std::move(one); }(std::move(waiting)));
      if (i == 2) {
        auto paused = co_await Loop::current()->sleep(Duration(1), {});
        EXPECT_OK(paused);
      }
    }
  });
}

TEST_P(Conformance, RegisteredBuffersAreSentAndReceivedInto) {
  const std::unique_ptr<Server> server = make_server();
  std::optional<Shelf> shelf;
  {
    Result<RegisteredBuffer> made = RegisteredBuffer::allocate(*server, 3 << 20);
    ASSERT_TRUE(made);
    shelf.emplace(std::move(*made));
  }
  server->register_handler<sum_of_attachment>();
  server->register_handler<&Shelf::part>(&*shelf);
  run_connected(*server, {}, [&shelf](Server& serving, Client& client) -> Task<void> {
    const bool rdma = client.transport() == "rdma";
    const bool registers = rdma || client.transport() == "ucx";
    EXPECT_EQ(shelf->registered(), registers);
    Result<RegisteredBuffer> made = RegisteredBuffer::allocate(client, 2 << 20);
    REQUIRE_OK(made);
    RegisteredBuffer& buffer = *made;
    EXPECT_EQ(buffer.registered(), registers);
    EXPECT_EQ(buffer.why_not().empty(), registers);
    EXPECT_EQ(buffer.size(), std::size_t{2} << 20);
    for (const std::byte one : buffer.memory().first(4096)) EXPECT_EQ(one, std::byte{0});
    std::uint64_t direct = 0;
    // Over UCX: every payload that is sent separately, whatever UCX chooses to carry it.
    const std::size_t copied_bytes_max = rdma ? RdmaOptions{}.eager_bytes_max : UcxOptions{}.rendezvous_bytes_min - 1;
    for (const std::size_t bytes :
         {1UL, 4'000UL, 64UL << 10, (64UL << 10) + 1, 128UL << 10, 1UL << 20, (2UL << 20) - 3}) {
      const std::string text = text_of(bytes, static_cast<char>('a' + bytes % 11));
      std::memcpy(buffer.memory().data() + 3, text.data(), text.size());
      const CallOptions options{.attachment = buffer.memory().subspan(3, bytes)};
      auto sum = co_await client.call<sum_of_attachment>(options);
      REQUIRE_OK(sum);
      EXPECT_EQ(*sum, sum_of(as_bytes(text)));
      // From the server's memory into the client's.
      auto reply = co_await client.call<&Shelf::part>(std::uint64_t{17}, std::uint64_t{bytes}).into(buffer.memory());
      REQUIRE_OK(reply);
      EXPECT_EQ(reply->attachment().data(), buffer.memory().data());
      EXPECT_EQ(sum_of(reply->attachment()), sum_of(shelf->memory().subspan(17, bytes)));
      direct += bytes > copied_bytes_max;
    }
    auto free = co_await eventually(*Loop::current(), [&] { return !buffer.in_use(); });
    EXPECT_TRUE(free);
    const std::vector<RdmaCounters> counters = rdma_counters(client);
    if (!rdma && registers) {
      REQUIRE(counters.size() == 1);
      EXPECT_EQ(counters.front().device, "ucx");
      EXPECT_GE(counters.front().buffer_sends, 2 * direct);
      EXPECT_GE(counters.front().buffer_receives, direct);
      EXPECT_EQ(counters.front().buffer_bytes, std::size_t{5} << 20);
    } else if (rdma) {
      REQUIRE(counters.size() == 1);
      // Counts requests and replies, since both sides are in this process.
      EXPECT_EQ(counters.front().buffer_sends, 2 * direct);
      EXPECT_EQ(counters.front().buffer_receives, direct);
      EXPECT_EQ(counters.front().buffer_bytes, std::size_t{5} << 20);
      EXPECT_EQ(counters.front().connections, 2U);
      EXPECT_GE(counters.front().registered_bytes, counters.front().used_bytes_max);
      EXPECT_GE(counters.front().used_bytes_max, counters.front().used_bytes);
      EXPECT_GE(counters.front().used_bytes, 2 * counters.front().connection_bytes);
      EXPECT_EQ(rdma_counters(serving).front().device, counters.front().device);
    } else {
      EXPECT_TRUE(counters.empty());
    }
  });
}

TEST_P(Conformance, ACallGivenUpLeavesARegisteredBufferWhenNobodyUsesItAnyMore) {
  constexpr std::size_t bytes = std::size_t{4} << 20;
  const std::unique_ptr<Server> server = make_server();
  Result<RegisteredBuffer> theirs = RegisteredBuffer::allocate(*server, bytes);
  ASSERT_TRUE(theirs);
  Shelf shelf(std::move(*theirs));
  server->register_handler<&Shelf::part>(&shelf);
  run_connected(*server, {}, [&shelf](Server&, Client& client) -> Task<void> {
    Loop& on = *Loop::current();
    Result<RegisteredBuffer> made = RegisteredBuffer::allocate(client, bytes);
    REQUIRE_OK(made);
    int given_up = 0;
    for (int i = 0; i < 40; ++i) {
      std::stop_source stop;
      Scope scope;
      scope.spawn([](Client& to, RegisteredBuffer& into, std::stop_token token, int& count) -> Task<void> {
        const CallOptions part_options{.token = token};
        auto reply = co_await to.call<&Shelf::part>(part_options, std::uint64_t{0}, std::uint64_t{into.size()})
                         .into(into.memory());
        count += !reply;
      }(client, *made, stop.get_token(), given_up));
      // The first call is given up at once: the machine may stop this thread in a sleep until the reply has arrived.
      if (i > 0) co_await on.sleep(std::chrono::microseconds(200 * i));
      stop.request_stop();
      co_await scope.join();
      auto free = co_await eventually(on, [&] { return !made->in_use() && !shelf.in_use(); });
      REQUIRE(free);
      // Nothing writes to the memory any more.
      std::memset(made->memory().data(), 'b', made->size());
      auto sign = co_await client.ping();
      EXPECT_OK(sign);
      EXPECT_EQ(as_text(made->memory()).find_first_not_of('b'), std::string_view::npos);
    }
    // On other transports even the first call may have been answered by then.
    if (made->registered()) {
      EXPECT_GT(given_up, 0);
    }
    EXPECT_EQ(client.failovers(), 0U);
  });
}

TEST_P(Conformance, MemoryOfTheCallersIsRegisteredWhileTheBufferLives) {
  serve<sum_of_attachment>([](Server&, Client& client) -> Task<void> {
    std::vector<std::byte> memory(300'001);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
    const MutableBytes part = MutableBytes(memory).subspan(1);
    for (int i = 0; i < 3; ++i) {
      Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(client, part);
      REQUIRE_OK(buffer);
      EXPECT_EQ(buffer->memory().data(), part.data());
      if (buffer->registered()) {
        const Result<RegisteredBuffer> again = RegisteredBuffer::wrap(client, MutableBytes(memory).first(2));
        EXPECT_ERROR(again, invalid_argument, "registered already");
      }
      const CallOptions sum_options{.attachment = part};
      auto sum = co_await client.call<sum_of_attachment>(sum_options);
      REQUIRE_OK(sum);
      EXPECT_EQ(*sum, sum_of(part));
      // The peer reports with its next packet that it is done.
      auto free = co_await eventually(*Loop::current(), [&] { return !buffer->in_use(); });
      EXPECT_TRUE(free);
    }
    // The memory is not registered any more.
    const CallOptions sum_options{.attachment = part};
    auto sum = co_await client.call<sum_of_attachment>(sum_options);
    REQUIRE_OK(sum);
    EXPECT_EQ(*sum, sum_of(part));
  });
}

inline RemoteRegion pass_on(RemoteRegion region) { return region; }
inline std::uint64_t first_of(std::uint64_t bytes) { return bytes; }

TEST_P(Conformance, OperationsOnExposedMemoryWork) {
  serve<pass_on, first_of>([](Server& server, Client& client) -> Task<void> {
    Result<RegisteredBuffer> theirs = RegisteredBuffer::allocate(server, 100'000);
    Result<RegisteredBuffer> ours = RegisteredBuffer::allocate(client, 100'000);
    REQUIRE_OK(theirs);
    REQUIRE_OK(ours);
    Result<ExposedRegion> region = theirs->expose(10, 90'000, RegionAccess::read_write);
    REQUIRE_OK(region);
    EXPECT_ERROR(theirs->expose(10, 0, RegionAccess::read), invalid_argument, "empty");
    EXPECT_ERROR(theirs->expose(theirs->size(), 1, RegionAccess::read), invalid_argument, "not within");
    EXPECT_ERROR(theirs->expose(1, theirs->size(), RegionAccess::read), invalid_argument, "not within");
    auto handle = co_await client.call<pass_on>(region->handle());
    REQUIRE_OK(handle);
    EXPECT_EQ(*handle, region->handle());
    RemoteMemory remote(client);
    std::memset(ours->memory().data(), 'w', 1000);
    auto beyond = co_await remote.write(*handle, 89'001, ours->memory().first(1000));
    EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    auto written = co_await remote.write(*handle, 0, ours->memory().first(1000));
    auto read = co_await remote.read(*handle, 500, ours->memory().subspan(2000, 1000));
    const CallOptions told_options;
    auto notified = co_await remote.write_with_notify<first_of>(*handle, 0, ours->memory().first(10), told_options,
                                                                std::uint64_t{3});
    EXPECT_OK(written);
    EXPECT_OK(read);
    REQUIRE_OK(notified);
    EXPECT_EQ(*notified, 3U);
    EXPECT_EQ(as_text(ours->memory().subspan(2000, 500)).find_first_not_of('w'), std::string_view::npos);
    EXPECT_EQ(ours->memory()[2500], std::byte{0});
    // Regions that are revoked twice, moved, or have no connection.
    ExposedRegion moved = std::move(*region);
    EXPECT_EQ(moved.handle(), *handle);
    moved.revoke();
    moved.revoke();
    client.close();
    auto closed = co_await remote.read(*handle, 0, ours->memory().first(1));
    EXPECT_ERROR(closed, not_sent, "");
  });
}

TEST_P(Conformance, ARegisteredBufferOfNothingIsRefused) {
  const std::unique_ptr<Client> client = make_client();
  EXPECT_ERROR(RegisteredBuffer::allocate(*client, 0), invalid_argument, "one byte or more");
  EXPECT_ERROR(RegisteredBuffer::allocate(*client, SIZE_MAX), overloaded, "ask for less");
  EXPECT_ERROR(RegisteredBuffer::wrap(*client, {}), invalid_argument, "one byte or more");
  const RegisteredBuffer empty;
  EXPECT_FALSE(empty.registered());
  EXPECT_FALSE(empty.in_use());
  EXPECT_EQ(empty.size(), 0U);
  EXPECT_TRUE(empty.share().empty());
}

}  // namespace hawser::conformance
