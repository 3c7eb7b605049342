#include "tests/simulation/service.h"

#include <stdexcept>
#include <utility>

namespace hawser::simulation {

std::string Service::echo(std::uint64_t id, std::string_view data, std::uint32_t reply_bytes) {
  checker_.executed(id);
  checker_.expect(is_content(id, data), "a request has another's bytes", id);
  return content(id ^ reply_mark, reply_bytes);
}

std::string_view Service::mirror(std::uint64_t id, std::string_view data) {
  checker_.executed(id);
  checker_.expect(is_content(id, data), "a request has another's bytes", id);
  return data;
}

std::vector<std::uint64_t> Service::numbers(std::uint64_t id, std::span<const std::uint64_t> values,
                                            std::string_view text) {
  checker_.executed(id);
  checker_.expect(is_content(id, text), "a request's second piece has another's bytes", id);
  std::vector<std::uint64_t> reversed(values.rbegin(), values.rend());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != id + i) {
      checker_.expect(false, "a request has another's numbers", id);
      break;
    }
  }
  return reversed;
}

void Service::nothing(std::uint64_t id) { checker_.executed(id); }

void Service::fail_as(std::uint64_t id, std::uint8_t how, Result<void>& outcome) {
  switch (static_cast<Failure>(how)) {
    case Failure::application:
      outcome = std::unexpected(Error::application(static_cast<std::int32_t>(id), "simulated " + std::to_string(id)));
      return;
    case Failure::result: outcome = fail(ErrorCode::invalid_argument, "simulated " + std::to_string(id)); return;
    case Failure::exception: throw std::runtime_error("simulated " + std::to_string(id));
    case Failure::strange: throw id;
  }
}

Result<std::string> Service::fails(std::uint64_t id, std::uint8_t how) {
  checker_.executed(id);
  Result<void> outcome;
  fail_as(id, how, outcome);
  if (!outcome) return std::unexpected(std::move(outcome.error()));
  return std::string();
}

std::string Service::attached(Context& context, std::uint64_t id, std::string_view data,
                              std::uint32_t attachment_bytes) {
  checker_.executed(id);
  checker_.expect(is_content(id, data), "a request has another's bytes", id);
  checker_.expect(is_content(id ^ attachment_mark, as_text(context.attachment())), "a request has another's attachment",
                  id);
  checker_.expect(context.metadata().find("id") == std::to_string(id), "a request has another's metadata", id);
  context.add_metadata("id", std::to_string(id ^ reply_mark));
  context.set_attachment(Buffer::copy_of(content(id ^ reply_mark ^ attachment_mark, attachment_bytes)));
  return content(id ^ reply_mark, data.size());
}

Task<std::string> Service::slow(Context& context, std::uint64_t id, std::string_view data, std::uint32_t reply_bytes,
                                std::uint32_t sleep_us) {
  checker_.executed(id);
  co_await context.loop().sleep(std::chrono::microseconds(sleep_us));
  checker_.expect(is_content(id, data), "a request's bytes changed while its handler slept", id);
  co_return content(id ^ reply_mark, reply_bytes);
}

Task<Result<std::string>> Service::slow_token(Context& context, std::uint64_t id, std::string data,
                                              std::uint32_t sleep_us) {
  checker_.executed(id);
  checker_.expect(is_content(id, data), "a request has another's bytes", id);
  Result<void> slept = co_await context.loop().sleep(std::chrono::microseconds(sleep_us), context.token());
  if (!slept) co_return std::unexpected(std::move(slept.error()));
  co_return content(id ^ reply_mark, data.size());
}

Task<std::string_view> Service::slow_mirror(Context& context, std::uint64_t id, std::string_view data,
                                            std::uint32_t sleep_us) {
  checker_.executed(id);
  co_await context.loop().sleep(std::chrono::microseconds(sleep_us));
  co_return data;
}

Task<Result<void>> Service::slow_fails(Context& context, std::uint64_t id, std::uint8_t how, std::uint32_t sleep_us) {
  checker_.executed(id);
  co_await context.loop().sleep(std::chrono::microseconds(sleep_us));
  Result<void> outcome;
  fail_as(id, how, outcome);
  co_return outcome;
}

Task<Result<std::uint32_t>> Service::upload(Context& context, std::uint64_t id, std::uint32_t items_max,
                                            std::uint32_t sleep_us, Reader<std::string> reader) {
  checker_.executed(id);
  std::uint32_t count = 0;
  while (count < items_max) {
    Result<std::optional<std::string>> item = co_await reader.next();
    if (!item) co_return std::unexpected(std::move(item.error()));
    if (!*item) break;
    checker_.item_read(item_id(id, 0), (*item)->size() + 4);
    checker_.expect(is_content(item_id(id, count), **item), "an uploaded item has another's bytes", id);
    ++count;
    if (sleep_us != 0) {
      co_await context.loop().sleep(std::chrono::microseconds(random_.below(sleep_us)));
    }
  }
  co_return count;
}

Task<Result<std::uint32_t>> Service::download(Context& context, std::uint64_t id, std::uint32_t items,
                                              std::uint32_t bytes_max, std::uint32_t sleep_us,
                                              Writer<std::string> writer) {
  checker_.executed(id);
  for (std::uint32_t i = 0; i < items; ++i) {
    const std::string item = content(item_id(id, i), random_.below(bytes_max + 1));
    Result<void> written = co_await writer.write(item);
    if (!written) co_return std::unexpected(std::move(written.error()));
    checker_.item_written(item_id(id, 1), item.size() + 4, client_window);
    if (sleep_us != 0) {
      co_await context.loop().sleep(std::chrono::microseconds(random_.below(sleep_us)));
    }
  }
  co_return items;
}

Task<Result<std::uint32_t>> Service::chat(Context&, std::uint64_t id, std::uint32_t items_max,
                                          Reader<std::string> reader, Writer<std::string> writer) {
  checker_.executed(id);
  std::uint32_t count = 0;
  while (count < items_max) {
    Result<std::optional<std::string>> item = co_await reader.next();
    if (!item) co_return std::unexpected(std::move(item.error()));
    if (!*item) break;
    checker_.item_read(item_id(id, 0), (*item)->size() + 4);
    checker_.expect(is_content(item_id(id, count), **item), "a chat's item has another's bytes", id);
    const std::string answer = content(item_id(id, count) ^ reply_mark, (*item)->size());
    Result<void> written = co_await writer.write(answer);
    if (!written) co_return std::unexpected(std::move(written.error()));
    checker_.item_written(item_id(id, 1), answer.size() + 4, client_window);
    ++count;
  }
  co_return count;
}

void register_service(Server& server, Service& service) {
  server.register_handler<&Service::echo, &Service::mirror, &Service::numbers, &Service::nothing, &Service::fails,
                          &Service::attached>(&service);
  server.register_handler<&Service::slow, &Service::slow_token, &Service::slow_mirror, &Service::slow_fails>(&service);
  server.register_handler<&Service::upload, &Service::download, &Service::chat>(&service);
}

}  // namespace hawser::simulation
