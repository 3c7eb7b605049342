#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"

// Memory of the application on the server: where payloads are received, and from where replies are sent.
namespace hawser::conformance {
namespace placing {

// One file of a server, into which requests are received directly.
struct Store {
  static constexpr std::size_t bytes_max = std::size_t{2} << 20;

  ReceiveInto into() {
    return [this](const IncomingPayload& payload) {
      ++selected;
      const auto offset = payload.arguments<std::uint64_t>();
      if (fails) throw std::runtime_error("no room");
      if (!offset) return Buffer();
      const std::size_t room = too_small ? payload.bytes - 1 : payload.bytes;
      return Buffer::of_foreign(Bytes(memory.data() + std::get<0>(*offset), room), [this] { ++released; });
    };
  }

  // Both return whether the attachment lies at its place in the store.
  bool put(Context& context, std::uint64_t offset) {
    ++served;
    return context.attachment().data() == memory.data() + offset && released < selected;
  }
  Task<bool> put_later(Context& context, std::uint64_t offset) {
    co_await context.loop().sleep(1ms);
    co_return put(context, offset);
  }
  // The payload has two arguments.
  std::string_view mirror(std::string_view text, std::string_view other) {
    ++served;
    const auto* const data = reinterpret_cast<const std::byte*>(text.data());
    inside = data >= memory.data() && data < memory.data() + memory.size();
    return other.size() > text.size() ? other : text;
  }
  ReceiveInto into_front() {
    return [this](const IncomingPayload& payload) {
      ++selected;
      EXPECT_EQ(payload.attachment_bytes, 0U);
      EXPECT_FALSE(payload.arguments<std::string_view>());
      return Buffer::of_foreign(Bytes(memory.data(), payload.bytes), [this] { ++released; });
    };
  }

  std::vector<std::byte> memory = std::vector<std::byte>(bytes_max);
  int selected = 0;
  int released = 0;
  int served = 0;
  bool too_small = false;
  bool fails = false;
  bool inside = false;
};

// Memory from which replies are sent. It is overwritten as soon as it is released.
struct Cache {
  explicit Cache(std::size_t bytes) : text(text_of(bytes)) {}
  Buffer entry() {
    return Buffer::of_foreign(as_bytes(text), [this] {
      text.assign(text.size(), '!');
      ++released;
    });
  }
  std::string_view get(Context& context) {
    context.keep_until_sent(entry());
    return text;
  }
  Task<std::string_view> get_later(Context& context) {
    co_await context.loop().sleep(1ms);
    co_return get(context);
  }
  int attach(Context& context) {
    context.set_attachment(entry());
    return released;
  }
  Task<int> attach_later(Context& context) {
    co_await context.loop().sleep(1ms);
    co_return attach(context);
  }

  std::string text;
  std::atomic<int> released{0};
};

template <auto F>
Task<std::string> text_from(Client& client) {
  const Result<std::string> got = co_await client.call<F>();
  co_return got.value_or(error_of(got));
}
template <auto F>
Task<std::string> attachment_from(Client& client) {
  const auto got = co_await client.call<F>().reply();
  co_return got ? std::string(as_text(got->attachment())) : error_of(got);
}

template <class Call>
Task<void> expect_kept(Loop& loop, Cache& cache, Call call) {
  const std::string expected = text_of(cache.text.size());
  const int before = cache.released;
  cache.text = expected;
  auto got = co_await call();
  EXPECT_TRUE(got == expected);
  auto released = co_await eventually(loop, [&] { return cache.released == before + 1; });
  EXPECT_TRUE(released);
}

}  // namespace placing
using namespace placing;

TEST_P(Conformance, HandlersPlaceAttachments) {
  Store store;
  auto server = make_server();
  server->register_handler<&Store::put, &Store::put_later>(&store, {.receive_into = store.into()});
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {1UL, 5'000UL, 40'000UL, 1UL << 20}) {
      for (const bool later : {false, true}) {
        const std::string text = text_of(bytes);
        const std::uint64_t offset = later ? 0 : 8192;
        std::fill(store.memory.begin(), store.memory.end(), std::byte{0});
        const CallOptions options{.attachment = as_bytes(text)};
        Result<bool> placed;
        if (later) {
          auto put = co_await client.call<&Store::put_later>(options, offset);
          placed = put;
        } else {
          auto put = co_await client.call<&Store::put>(options, offset);
          placed = put;
        }
        REQUIRE_OK(placed);
        EXPECT_TRUE(*placed) << bytes;
        EXPECT_EQ(std::memcmp(store.memory.data() + offset, text.data(), bytes), 0) << bytes;
        auto released = co_await eventually(loop(), [&] { return store.released == store.selected; });
        EXPECT_TRUE(released);
      }
    }
    EXPECT_EQ(store.selected, 8);
    const CallOptions none;
    auto without = co_await client.call<&Store::put>(none, 0U);
    EXPECT_EQ(without, false);
    EXPECT_EQ(store.selected, 8);  // There was no payload to place.
  });
}

TEST_P(Conformance, HandlersPlaceArgumentsAndReplyFromThere) {
  Store store;
  auto server = make_server();
  server->register_handler<&Store::mirror>(&store, {.receive_into = store.into_front()});
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {9'001UL, 300'000UL}) {
      const std::string first = text_of(bytes);
      const std::string second = text_of(bytes + 20'000, 'A');
      auto mirrored = co_await client.call<&Store::mirror>(first, second);
      EXPECT_TRUE(mirrored == second) << bytes;
      EXPECT_TRUE(store.inside);
      auto released = co_await eventually(loop(), [&] { return store.released == store.selected; });
      EXPECT_TRUE(released);
    }
  });
}

TEST_P(Conformance, RefusesPayloadsThatTheHandlerHasNoMemoryFor) {
  Store store;
  auto server = make_server();
  server->register_handler<&Store::put>(&store, {.receive_into = store.into()});
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {5'000UL, 1UL << 20}) {
      const std::string text = text_of(bytes);
      const CallOptions options{.attachment = as_bytes(text)};
      store.too_small = true;
      auto small = co_await client.call<&Store::put>(options, 0U);
      EXPECT_ERROR(
          small, limit_exceeded,
          "receive_into gave " + std::to_string(bytes - 1) + " bytes for a payload of " + std::to_string(bytes));
      store.too_small = false;
      store.fails = true;
      auto threw = co_await client.call<&Store::put>(options, 0U);
      EXPECT_ERROR(threw, limit_exceeded, "receive_into threw an exception");
      store.fails = false;
      EXPECT_EQ(store.served, bytes == 5'000 ? 0 : 1);
      auto served = co_await client.call<&Store::put>(options, 0U);
      EXPECT_EQ(served, true);
    }
    auto released = co_await eventually(loop(), [&] { return store.released == 4; });
    EXPECT_TRUE(released);
  });
}

TEST_P(Conformance, ReleasesPlacedMemoryWhenTheConnectionEnds) {
  Store store;
  auto server = make_server();
  server->register_handler<&Store::put_later>(&store, {.receive_into = store.into()});
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    const std::string text = text_of(Store::bytes_max);
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<Client> client = make_client();
      auto connected = co_await client->connect(server->address());
      REQUIRE_OK(connected);
      const int before = store.selected;
      Scope scope;
      scope.spawn([](Client& one, const std::string& data) -> Task<void> {
        const CallOptions options{.attachment = as_bytes(data)};
        static_cast<void>(co_await one.call<&Store::put_later>(options, 0U));
      }(*client, text));
      auto selected = co_await eventually(loop(), [&] { return store.selected > before; });
      EXPECT_TRUE(selected);
      client->close();
      auto released = co_await eventually(loop(), [&] { return store.released == store.selected; });
      EXPECT_TRUE(released);
      co_await scope.join();
    }
    co_await server->shut_down(10ms);
    EXPECT_EQ(server->counters().receive_bytes, 0U);
  });
}

TEST_P(Conformance, RepliesKeepMemoryUntilItHasBeenSent) {
  for (const std::size_t bytes : {100UL, 300'000UL}) {
    Cache cache(bytes);
    auto server = make_server();
    server->register_handler<&Cache::get, &Cache::get_later, &Cache::attach, &Cache::attach_later>(&cache);
    run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
      co_await expect_kept(loop(), cache, [&] { return text_from<&Cache::get>(client); });
      co_await expect_kept(loop(), cache, [&] { return text_from<&Cache::get_later>(client); });
      co_await expect_kept(loop(), cache, [&] { return attachment_from<&Cache::attach>(client); });
      co_await expect_kept(loop(), cache, [&] { return attachment_from<&Cache::attach_later>(client); });
    });
  }
}

}  // namespace hawser::conformance
