// Compiled by tools/compile_test.py, without -c: the error of each line that ends in `says: TEXT` contains TEXT, with
// every compiler. Each line is one mistake of a user.
#include <any>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/blocking_client.h"
#include "hawser/call.h"
#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/server.h"
#include "hawser/stream.h"
#include "hawser/when.h"

using hawser::Context;
using hawser::Reader;
using hawser::Result;
using hawser::Task;
using hawser::Writer;

int good(int x);
int late_context(int x, Context& context);
int context_by_value(Context context);
int context_to_read(const Context& context, int x);
void out_parameter(int x, std::string& out);
Task<int> reader_by_reference(int x, Reader<int>& in);
Task<int> writer_by_reference(Writer<int>&& out);
std::string& gives_reference(int x);
Task<std::string&> gives_task_of_reference(int x);
Task<int&> coroutine() { co_return *new int; }  // says: a Task returns no reference: write `hawser::Task<T>`

struct Generic {
  template <class T>
  T operator()(T x) const;
};
struct Overloaded {
  int operator()(int x) const;
  int operator()(std::string_view x) const;
};
struct Shop {
  void sell(int x, std::string& out);
};

void server(hawser::Server& server, Shop& shop) {
  server.register_handler<good>();
  server.register_handler<late_context>();         // says: the Context of a handler is its first parameter
  server.register_handler<context_by_value>();     // says: the Context of a handler is its first parameter
  server.register_handler<context_to_read>();      // says: the Context of a handler is its first parameter
  server.register_handler<out_parameter>();        // says: a handler gives no result through a parameter `T&`
  server.register_handler<&Shop::sell>(&shop);     // says: a handler gives no result through a parameter `T&`
  server.register_handler<reader_by_reference>();  // says: a handler owns its Reader and its Writer: write
  server.register_handler<writer_by_reference>();  // says: a handler owns its Reader and its Writer: write
  server.register_handler<gives_reference>();      // says: a handler returns no reference that others could write to
  server
      .register_handler<gives_task_of_reference>();  // says: a handler returns no reference that others could write to
  server.register_handler<Generic{}>();              // says: a handler is a function, a member function, or a lambda
  server.register_handler<Overloaded{}>();           // says: a handler is a function, a member function, or a lambda
  server.register_handler<[](auto x) { return x; }>();  // says: a handler is a function, a member function, or a lambda
}

int one(int x);
int two(int x);
int three(int x);
int out_of_client(int x, std::string& out);

Task<void> client(hawser::Client& client) {
  auto call = client.call<one>(1);
  auto named = co_await std::move(call);
  (void)named;
  auto again = client.call<two>(1);
  (void)co_await again;  // says: a call is awaited once, which uses it up: write `co_await std::move(call)`
  auto whole = client.call<two>(1).reply();
  (void)co_await whole;  // says: a call is awaited once, which uses it up: write `co_await std::move(call)`
  auto sending = client.send_request<three>(1);
  (void)co_await sending;  // says: a Task is awaited once, which uses it up: write `co_await std::move(task)`
  auto sent = client.send_request<three>(1);
  auto pending = co_await std::move(sent);
  (void)co_await *pending;                  // says: a call is awaited once, which uses it up: write
  (void)client.call<out_of_client>(1, "");  // says: a handler gives no result through a parameter `T&`
}

struct WithUnion {
  union {
    int a;
    float b;
  };
  int c;
};
struct WithLaterUnion {
  int c;
  union {
    int a;
    double b;
  };
  std::string text;
};
union Number {
  int a;
  float b;
};
struct WithNamedUnion {
  std::string text;
  Number number;
};
struct WithAny {
  std::any value;
};
void takes_union(WithUnion x);
void takes_later_union(WithLaterUnion x);
void takes_named_union(WithNamedUnion x);
void takes_any(WithAny x);
hawser::Error gives_error(int x);
Task<hawser::Error> gives_task_of_error(int x);
Task<void> writer_first(Writer<int> out, int x);
Task<Result<int>> fails() { co_return hawser::Error{}; }  // says: a coroutine fails by `co_return hawser::fail(
struct Store {
  int sell(int x);
};
int add(int a, int b);
int length(std::string_view text);

void more_of_server(hawser::Server& server) {
  server.register_handler<takes_union>();          // says: a field of this struct is a union
  server.register_handler<takes_later_union>();    // says: a field of this struct is a union
  server.register_handler<takes_named_union>();    // says: a field of this struct is a union
  server.register_handler<takes_any>();            // says: this type can't travel
  server.register_handler<gives_error>();          // says: a handler that returns an Error would succeed with it
  server.register_handler<gives_task_of_error>();  // says: a handler that returns an Error would succeed with it
  server.register_handler<writer_first>();  // says: the Reader and the Writer of a handler are its last parameters
  server.register_handler<&Store::sell>();  // says: a member function is called on an object
}
Task<void> more_of_client(hawser::Client& client) {
  (void)co_await client.call<add>(1, 2.9);  // says: is a floating-point number and the handler's parameter an integer
  (void)co_await client.call<add>(1, 2);
  (void)co_await client.call<add>(true, 'c');
  hawser::sync_wait(client.call<length>("a"));  // says: sync_wait() takes a hawser::Task
  std::vector<decltype(client.call<add>(1, 2))> calls;
  co_await hawser::when_all(std::move(calls));  // says: when_all() takes hawser::Tasks
}

struct WithBitFields {
  int whole;
  int part : 3;
};
struct OnlyBitFields {
  unsigned low : 4;
  unsigned high : 4;
};
void takes_bit_fields(WithBitFields x);
OnlyBitFields gives_bit_fields();
int overloaded(int x);
double overloaded(double x);
template <class T>
T generic(T x);
struct Till {
  int add(int x);
  int add(double x);
};
unsigned natural(unsigned x, const std::string& text);
unsigned char small(unsigned char x);
int number(long x, bool set);

void rest_of_server(hawser::Server& server, Till& till) {
  server.register_handler<takes_bit_fields>();                    // says: a field of this struct is a bit-field
  server.register_handler<gives_bit_fields>();                    // says: a field of this struct is a bit-field
  server.register_handler<overloaded>();                          // says first: this name stands for several functions
  server.register_handler<good, &overloaded>({.offload = true});  // says first: this name stands for several functions
  server.register_handler<generic>();                             // says first: this name stands for several functions
  server.register_handler<&Till::add>(&till);                     // says first: this name stands for several functions
  int factor = 2;
  constexpr int offset = 3;
  server.register_handler<[factor](int x) { return factor * x; }>();  // says among others: this object has captures
  server.register_handler<[&](int x) { return factor * x; }>();       // says first: this object has captures
  server.register_handler<[offset](int x) { return offset + x; }>();  // says first: this object has captures
}
Task<void> rest_of_client(hawser::Client& client, hawser::ClientPool& pool, hawser::BlockingClient& blocking) {
  (void)co_await client.call<overloaded>(1);               // says first: this name stands for several functions
  (void)co_await client.call<overloaded>({}, 2);           // says first: this name stands for several functions
  (void)co_await client.send_request<&Till::add>(1);       // says first: this name stands for several functions
  (void)co_await client.open<generic>(1);                  // says first: this name stands for several functions
  (void)co_await client.call<[](int x) { return x; }>(1);  // says: a lambda has no name
  (void)co_await pool.call<overloaded>(1);                 // says first: this name stands for several functions
  (void)blocking.call<overloaded>(1);                      // says first: this name stands for several functions
  (void)blocking.start<overloaded>(1);                     // says first: this name stands for several functions
  blocking.then<overloaded>([](auto) {}, 1);               // says first: this name stands for several functions
  (void)co_await client.call<natural>(1, "a");
  (void)co_await client.call<number>('a', 5);
  const int negative = -1;
  int variable = -1;
  (void)co_await client.call<natural>(variable, "a");
  (void)co_await client.call<natural>(-1, "a");        // clang says: is a constant that the handler's parameter
  (void)co_await client.call<natural>(negative, "a");  // clang says: is a constant that the handler's parameter
  (void)co_await client.call<add>(1LL << 40, 2);       // clang says: is a constant that the handler's parameter
  (void)co_await client.call<small>(hawser::CallOptions(),
                                    256);          // clang says: is a constant that the handler's parameter
  (void)co_await client.send_request<small>(256);  // clang says: is a constant that the handler's parameter
  (void)co_await pool.call<small>(-1);             // clang says: is a constant that the handler's parameter
  (void)blocking.call<small>(256);                 // clang says: is a constant that the handler's parameter
  (void)blocking.start<small>(256);                // clang says: is a constant that the handler's parameter
}
