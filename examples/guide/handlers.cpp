// Chapter 2 of the guide: the forms of handlers.
#include <hawser/hawser.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>

using namespace std::chrono_literals;

// [plain]
// A plain function. It runs on the loop of its connection, so it must not block.
int add(int a, int b) { return a + b; }

// A Result gives the caller an error instead of a value.
hawser::Result<int> divide(int a, int b) {
  if (b == 0) return std::unexpected(hawser::Error::application(1, "the divisor is 0"));
  return a / b;
}
// [/plain]

// [class]
// Members of an object. With one thread, all handlers run on one loop, and the object needs no lock.
class Store {
 public:
  void put(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }

  std::optional<std::string> get(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};
// [/class]

// [context]
// `Context&` as the first parameter: the peer, the deadline, a stop token, attachments and metadata of the call.
std::string who_am_i(hawser::Context& context) { return "you are " + context.peer(); }
// [/context]

// [coroutine]
// A coroutine may wait. Other calls run meanwhile. Its arguments live until it has ended: take them by value, or as
// views of the request, which Hawser keeps for the call.
hawser::Task<std::string> slow_echo(hawser::Context& context, std::string_view text) {
  co_await context.loop().sleep(1ms);
  co_return std::string(text);
}
// [/coroutine]

// [blocking]
// Blocks a thread. Registered with {.offload = true}, it runs on the offload pool instead of the loop.
std::string read_slowly(std::string_view name) {
  std::this_thread::sleep_for(1ms);  // Stands for a slow disk.
  return "contents of " + std::string(name);
}
// [/blocking]

// [overload]
// Overloads have one name in C++. Each gets a name of its own on the wire.
int scale(int value) { return 2 * value; }
double scale(double value) { return 2 * value; }

constexpr auto scale_int = static_cast<int (*)(int)>(&scale);
constexpr auto scale_double = static_cast<double (*)(double)>(&scale);

template <>
inline constexpr std::string_view hawser::method_name_override<scale_int> = "scale_int";
template <>
inline constexpr std::string_view hawser::method_name_override<scale_double> = "scale_double";
// [/overload]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;
  hawser::Result<int> sum = co_await client.call<add>(2, 3);
  hawser::Result<int> refused = co_await client.call<divide>(1, 0);
  // [call-member]
  const std::string key = "colour";
  const std::string value = "blue";
  hawser::Result<void> stored = co_await client.call<&Store::put>(key, value);
  hawser::Result<std::optional<std::string>> found = co_await client.call<&Store::get>(key);
  // [/call-member]
  hawser::Result<std::string> me = co_await client.call<who_am_i>();
  hawser::Result<std::string> echoed = co_await client.call<slow_echo>("hello");
  hawser::Result<std::string> contents = co_await client.call<read_slowly>("a.txt");
  hawser::Result<double> scaled = co_await client.call<scale_double>(1.5);
  std::printf("%d, '%s', %s, %s, %s\n", sum.value_or(0), refused ? "" : refused.error().text.c_str(),
              me.value_or("").c_str(), echoed.value_or("").c_str(), contents.value_or("").c_str());
  co_return sum == 5 && !refused && stored && found && *found == "blue" && me && echoed == "hello" && contents &&
          scaled == 3.0
      ? 0
      : 1;
}

int main() {
  // [register]
  Store store;  // Outlives the server.
  hawser::Server server;
  server.register_handler<add, divide, who_am_i, slow_echo>();
  server.register_handler<scale_int, scale_double>();
  server.register_handler<&Store::put, &Store::get>(&store);
  server.register_handler<read_slowly>({.offload = true});
  // [/register]
  if (auto started = server.start(); !started) {
    std::puts(started.error().describe().c_str());
    return 1;
  }
  return hawser::sync_wait(talk(server.address()));
}
