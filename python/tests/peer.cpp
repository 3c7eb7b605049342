// The C++ side of the tests: `peer serve` is a server, and `peer call ADDRESS` calls the same methods of a server in
// Python and checks the answers.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/memory.h"

namespace shop {

enum class Color : int { red, green, blue };

struct Item {
  std::string name;
  std::int32_t count = 0;
  std::optional<double> price;
  std::vector<std::string> tags;

  friend bool operator==(const Item&, const Item&) = default;
};

struct Order {
  std::uint64_t id = 0;
  std::vector<Item> items;
  std::map<std::string, std::int64_t> stock;
  Color color = Color::red;
  std::variant<std::int64_t, std::string> note;

  friend bool operator==(const Order&, const Order&) = default;
};

struct Grown {
  std::string name;
  std::int64_t added = 5;

  static constexpr std::size_t hawser_base_fields = 1;
};

struct Node {
  std::int64_t value = 0;
  std::vector<Node> children;
};

std::atomic<std::int64_t> stopped = 0;

Order order(Order given) {
  given.id += 1;
  return given;
}
std::int64_t add(std::int64_t a, std::int64_t b) { return a + b; }
std::vector<std::byte> bytes(std::vector<std::byte> given) { return given; }
std::vector<float> doubled(std::vector<float> given) {
  for (float& one : given) one *= 2;
  return given;
}
std::tuple<bool, std::set<std::int64_t>, std::chrono::microseconds> mixed(
    std::tuple<bool, std::set<std::int64_t>, std::chrono::microseconds> given) {
  return given;
}
Grown grown(Grown given) { return given; }
std::int64_t sum(Node node) {
  std::int64_t total = node.value;
  for (const Node& child : node.children) total += sum(child);
  return total;
}
hawser::Task<hawser::Result<std::string>> beside(hawser::Context& context, std::string text) {
  context.set_attachment(hawser::Buffer::copy_of(context.attachment()));
  for (const auto& [key, value] : context.metadata().copy()) context.add_metadata(key, value);
  co_return text;
}
hawser::Task<hawser::Result<void>> sleep_until_stopped(hawser::Context& context) {
  static_cast<void>(co_await context.loop().sleep(std::chrono::hours(1), context.token()));
  ++stopped;
  // The caller's own deadline ends the call, and not an answer that arrives a little earlier.
  co_await context.loop().sleep(std::chrono::hours(1));
  co_return hawser::Result<void>();
}
std::int64_t stopped_count() { return stopped; }
hawser::Result<std::int64_t> fail() { return std::unexpected(hawser::Error::application(7, "no rope")); }
// Sends the sum of the items so far for each item, and returns their number.
hawser::Task<hawser::Result<std::int64_t>> sums(std::int64_t first, hawser::Reader<std::int64_t> in,
                                                hawser::Writer<std::int64_t> out) {
  std::int64_t sum = first;
  std::int64_t count = 0;
  for (;;) {
    const auto item = co_await in.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) co_return count;
    sum += **item;
    ++count;
    const auto written = co_await out.write(sum);
    if (!written) co_return std::unexpected(written.error());
  }
}

// Memory that the client in Python accesses.
hawser::ExposedRegion exposed;
hawser::RemoteRegion where() { return exposed.handle(); }

}  // namespace shop

namespace {

int serve() {
  hawser::Server server;
  server.register_handler<shop::order, shop::add, shop::bytes, shop::doubled, shop::mixed, shop::grown, shop::sum,
                          shop::beside, shop::sleep_until_stopped, shop::stopped_count, shop::fail, shop::where,
                          shop::sums>();
  std::vector<std::byte> memory(1'000'000, std::byte{5});
  auto buffer = hawser::RegisteredBuffer::wrap(server, memory);
  if (!buffer) return 1;
  auto exposed = buffer->expose(0, memory.size(), hawser::RegionAccess::read_write);
  if (!exposed) return 1;
  shop::exposed = std::move(*exposed);
  if (const hawser::Result<void> started = server.start(); !started) {
    std::cerr << started.error().describe() << "\n";
    return 1;
  }
  std::cout << server.address() << std::endl;
  std::string line;
  std::getline(std::cin, line);  // The test ends the server by closing its input.
  shop::exposed = {};
  return 0;
}

int failures = 0;

void expect(bool holds, const char* what) {
  std::cout << (holds ? "ok " : "FAILED ") << what << "\n";
  if (!holds) ++failures;
}

hawser::Task<void> call(std::string address) {
  hawser::Client client;
  const hawser::Result<void> connected = co_await client.connect(address);
  expect(connected.has_value(), "connect");
  if (!connected) co_return;
  const shop::Order order{.id = 41,
                          .items = {{"rope", 2, 1.5, {"long", "new"}}, {"sail", -1, std::nullopt, {}}},
                          .stock = {{"rope", 10}},
                          .color = shop::Color::blue,
                          .note = std::string("quick")};
  shop::Order expected = order;
  expected.id = 42;
  const auto ordered = co_await client.call<shop::order>(order);
  expect(ordered && *ordered == expected, "order");
  const auto added = co_await client.call<shop::add>(2, 3);
  expect(added && *added == 5, "add");
  const std::vector<std::byte> large(1'000'000, std::byte{7});
  const auto echoed = co_await client.call<shop::bytes>(large);
  expect(echoed && *echoed == large, "bytes");
  const std::vector<float> numbers(5'000, 1.5F);
  const auto twice = co_await client.call<shop::doubled>(numbers);
  expect(twice && twice->size() == 5'000 && twice->at(4'999) == 3.0F, "doubled");
  const auto mixed_given = std::tuple(true, std::set<std::int64_t>{1, 2}, std::chrono::microseconds(1'500'000));
  const auto mixed = co_await client.call<shop::mixed>(mixed_given);
  expect(mixed && *mixed == mixed_given, "mixed");
  const auto grown = co_await client.call<shop::grown>(shop::Grown{"a", 9});
  expect(grown && grown->name == "a" && grown->added == 9, "grown");
  const shop::Node tree{1, {{2, {}}, {3, {{4, {}}}}}};
  const auto sum = co_await client.call<shop::sum>(tree);
  expect(sum && *sum == 10, "sum");
  hawser::CallOptions options;
  options.attachment = large;
  options.metadata = {{"key", "value"}};
  const auto beside = co_await client.call<shop::beside>(options, std::string_view("text")).reply();
  expect(beside && beside->value() == "text" && beside->attachment().size() == large.size() &&
             beside->metadata().find("key") == "value",
         "beside");
  const auto failed = co_await client.call<shop::fail>();
  expect(!failed && failed.error().code == hawser::ErrorCode::application && failed.error().application_code == 7 &&
             failed.error().text == "no rope",
         "fail");
  auto opened = co_await client.open<shop::sums>(100);
  expect(opened.has_value(), "open");
  if (opened) {
    auto in = opened->reader();
    auto out = opened->writer();
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto written = co_await out.write(i);
      const auto item = co_await in.next();
      if (written && item && *item) last = **item;
    }
    const auto count = co_await opened->finish();
    expect(last == 100 + 99 * 50 && count && *count == 100, "sums");
  }
  hawser::CallOptions brief;
  brief.timeout = std::chrono::milliseconds(50);
  const auto late = co_await client.call<shop::sleep_until_stopped>(brief);
  expect(!late && late.error().code == hawser::ErrorCode::deadline_exceeded, "sleep_until_stopped");
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "serve") return serve();
  if (count == 3 && std::string(words[1]) == "call") {
    hawser::sync_wait(call(words[2]));
    return failures == 0 ? 0 : 1;
  }
  std::cerr << "peer serve | peer call ADDRESS\n";
  return 2;
}
