#include "cli/demo/services.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "base/try.h"
#include "cli/demo/echo.hawser.h"
#include "cli/demo/shop.hawser.h"

namespace hawser::cli {

namespace {

class EchoDemo final : public example::EchoService {
 public:
  Task<Result<example::EchoResponse>> Echo(Context& context, const example::EchoRequest& request) override {
    example::EchoResponse reply;
    if (request.has_message()) reply.set_message(request.message());
    if (!context.attachment().empty()) context.set_attachment(Buffer::copy_of(context.attachment()));
    co_return reply;
  }
};

class ShopDemo final : public demo::ShopService {
 public:
  Task<Result<demo::OrderReply>> Order(Context&, const demo::OrderRequest& request) override {
    if (request.count() < 1) {
      co_return fail(ErrorCode::invalid_argument,
                     "count is " + std::to_string(request.count()) + ": order at least 1 item");
    }
    demo::OrderReply reply;
    reply.set_number(orders_.fetch_add(1) + 1);
    reply.set_text(std::to_string(request.count()) + " x " + request.item());
    co_return reply;
  }

  Task<Result<demo::Receipt>> Buy(Context&, Reader<demo::Item> requests) override {
    demo::Receipt receipt;
    while (true) {
      CO_TRY(const auto& item, co_await requests.next());
      if (!item) co_return receipt;
      if (receipt.names_size() == items_max) {
        co_return fail(ErrorCode::limit_exceeded, "more than 1,000 items: buy in several calls");
      }
      receipt.add_names(item->name());
      receipt.set_items(receipt.items() + std::max(item->count(), 1));
    }
  }

  Task<Result<void>> Watch(Context& context, const demo::WatchRequest& request, Writer<demo::Event> replies) override {
    const int events = std::min(request.events(), events_max);
    const std::chrono::milliseconds interval(std::max(request.interval_ms(), 0));
    for (int i = 1; i <= events; ++i) {
      if (context.stopping().stop_requested()) co_return fail(ErrorCode::cancelled, "the server is stopping");
      if (interval.count() != 0) {
        CO_TRY(co_await context.loop().sleep(interval, context.token()));
      }
      demo::Event event;
      event.set_number(i);
      event.set_text("event " + std::to_string(i) + " of " + std::to_string(events));
      CO_TRY(co_await replies.write(event));
    }
    co_return Result<void>{};
  }

  Task<Result<void>> Chat(Context&, Reader<demo::Item> requests, Writer<demo::Event> replies) override {
    for (int number = 1;; ++number) {
      CO_TRY(const auto& item, co_await requests.next());
      if (!item) co_return Result<void>{};
      demo::Event event;
      event.set_number(number);
      event.set_text(item->name() + " is in stock");
      CO_TRY(co_await replies.write(event));
    }
  }

 private:
  static constexpr int items_max = 1'000;
  static constexpr int events_max = 1'000'000;
  std::atomic<std::int64_t> orders_{0};
};

}  // namespace

struct DemoServices::State {
  EchoDemo echo;
  ShopDemo shop;
};

DemoServices::DemoServices() : state_(std::make_unique<State>()) {}
DemoServices::~DemoServices() = default;

void DemoServices::add_to(Server& server) {
  server.add_service(&state_->echo);
  server.add_service(&state_->shop);
}

bool DemoServices::available() noexcept { return true; }

}  // namespace hawser::cli
