// Handlers that wait: a coroutine, a member function, and a blocking handler that runs on another thread.
#include <hawser/hawser.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

struct Order {
  int item = 0;
  int count = 0;
};

// A shop whose state is used on the server's loop only: its handlers run on one thread and need no locks.
class Shop {
 public:
  // A coroutine may wait; other calls continue meanwhile. The caller receives the handler's own errors unchanged.
  hawser::Task<hawser::Result<int>> order(hawser::Context& context, std::vector<Order> orders) {
    co_await context.loop().sleep(1ms);
    for (const Order& order : orders) {
      if (order.count <= 0) co_return std::unexpected(hawser::Error::application(7, "nothing ordered"));
      sold_ += order.count;
    }
    co_return sold_;
  }

 private:
  int sold_ = 0;
};

std::string read_slowly(std::string_view name) {
  std::this_thread::sleep_for(5ms);  // Stands for a slow disk.
  return "contents of " + std::string(name);
}

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;
  std::vector<Order> orders = {{.item = 1, .count = 2}, {.item = 5, .count = 40}};
  hawser::Result<int> sold = co_await client.call<&Shop::order>(orders);
  std::printf("sold: %d\n", sold.value_or(-1));

  orders.push_back({.item = 9, .count = 0});
  hawser::Result<int> refused = co_await client.call<&Shop::order>(orders);
  std::printf("refused: %s\n", refused ? "no" : refused.error().describe().c_str());

  hawser::Result<std::string> contents = co_await client.call<read_slowly>("a.txt");
  std::printf("%s\n", contents ? contents->c_str() : contents.error().describe().c_str());
  co_return sold == 42 && !refused && refused.error().application_code == 7 && contents ? 0 : 1;
}

int main() {
  Shop shop;
  hawser::Server server;
  server.register_handler<&Shop::order>(&shop);
  server.register_handler<read_slowly>({.offload = true});
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
