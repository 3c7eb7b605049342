// Compiled by tools/compile_test.py, without -c: each line that ends in `refused: TEXT` must not compile with GCC 12,
// for the reason that contains TEXT. All other lines compile with GCC 12 too, and all lines with every other compiler.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/channel.h"
#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/loop.h"
#include "hawser/stream.h"
#include "hawser/with_timeout.h"

// A type for each line, since compilers report an instantiation once.
template <int n>
struct Person {
  std::string name;
  int age = 0;
};
struct Point {
  int x = 0;
  int y = 0;
};
template <int n>
struct Box {
  std::unique_ptr<int> content;
};

template <int n>
int greet(Person<n> person);
int place(Point point, std::string name);
template <int n>
int count(std::vector<Person<n>> people);
template <int n>
int last(std::optional<Person<n>> person);
template <int n>
void watch(Person<n> who, hawser::Writer<Person<n>> out);
template <int n>
hawser::Channel<Person<n>>& people();
template <int n>
hawser::Channel<Box<n>>& boxes();
template <int n>
hawser::Writer<Person<n>>& out();

hawser::Task<hawser::Result<int>> work(hawser::Client& client, hawser::ClientPool& pool, hawser::Loop& loop) {
  using hawser::CallOptions;
  using std::chrono::seconds;
  const Person<0> ann{.name = "Ann"};
  Person<0> bob{.name = "Bob"};
  const std::vector<Person<0>> all{ann, bob};
  CallOptions options{.timeout = seconds(1)};

  (void)co_await client.call<greet<0>>(ann);
  (void)co_await client.call<greet<0>>(options, bob);
  (void)co_await client.call<place>(Point{.x = 1}, std::string("home"));
  (void)co_await client.call<count<0>>(all);
  (void)co_await client.send_request<greet<0>>(options, ann);
  (void)co_await client.open<watch<0>>(options, ann);
  (void)co_await pool.call<greet<0>>(ann);
  (void)co_await pool.call<greet<0>>(options, ann).reply();
  (void)co_await pool.open<watch<0>>(options, ann);
  (void)co_await pool.send_request([&](hawser::Client& one) { return one.send_request<greet<0>>(ann); });
  (void)co_await people<0>().send(ann);
  (void)co_await people<0>().send(hawser::moved(bob));
  (void)co_await out<0>().write(ann);
  (void)co_await loop.offload([&] { return ann.age; });
  auto owner = [name = ann.name] { return name.size(); };
  (void)co_await loop.offload(owner);
  (void)co_await loop.offload(hawser::moved(owner));
  Box<0> box{.content = nullptr};
  (void)co_await boxes<0>().send(hawser::moved(box));
  Box<0> other{.content = nullptr};
  boxes<0>().try_send(std::move(other));
  auto limited = [name = ann.name](std::stop_token) -> hawser::Task<hawser::Result<int>> { co_return name.empty(); };
  (void)co_await hawser::with_timeout(seconds(1), limited);

  (void)co_await client.call<greet<1>>(Person<1>{.name = "Eve"});  // refused: give it a name first
  Person<2> cleo{.name = "Cleo"};
  (void)co_await client.call<greet<2>>(std::move(cleo));                          // refused: without std::move()
  (void)co_await client.call<greet<0>>(CallOptions{.timeout = seconds(1)}, ann);  // refused: CallOptions options{
  (void)co_await client.call<place>({.timeout = seconds(1)}, Point(), "");        // refused: give it a name first
  (void)co_await client.call<count<3>>(std::vector<Person<3>>(2));                // refused: give it a name first
  (void)co_await client.call<last<4>>(std::optional(Person<4>{}));                // refused: give it a name first
  (void)co_await client.send_request<greet<5>>(Person<5>{.name = "Eve"});         // refused: give it a name first
  (void)co_await client.open<watch<0>>(std::move(options), ann);                  // refused: without std::move()
  (void)co_await pool.call<greet<6>>(Person<6>{.name = "Eve"});                   // refused: give it a name first
  (void)co_await pool.open<watch<12>>(Person<12>{.name = "Eve"});                 // refused: give it a name first
  (void)co_await people<7>().send(Person<7>{.name = "Eve"});                      // refused: hawser::moved(item)
  (void)co_await people<8>().send({.name = "Eve"});                               // refused: hawser::moved(item)
  (void)co_await boxes<9>().send(Box<9>{.content = nullptr});                     // refused: hawser::moved(item)
  (void)co_await out<10>().write(Person<10>{.name = "Eve"});                      // refused: give it a name first
  (void)co_await out<11>().write({.name = "Eve"});                                // refused: give it a name first
  (void)co_await loop.offload([name = ann.name] { return name.size(); });         // refused: hawser::moved(work)
  (void)co_await hawser::with_timeout(seconds(1), std::move(limited));            // refused: hawser::moved(work)
  co_return 0;
}
