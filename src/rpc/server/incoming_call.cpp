#include <utility>

#include "base/quick_random.h"
#include "hawser/interceptor.h"
#include "wire/metadata.h"

namespace hawser {

Task<Result<void>> Next::operator()() {
  if (link_ == nullptr || link_->target == nullptr) {
    return [](bool moved) -> Task<Result<void>> {
      co_return fail(ErrorCode::internal, moved ? "next() was called on a Next that was moved from"
                                                : "next() was called after its call had ended");
    }(link_ == nullptr);
  }
  return link_->target->enter_level(level_);
}

std::uint64_t detail::CallDraw::draw() noexcept {
  drawn_ = true;
  return number_ = quick_random();
}

IncomingCall::IncomingCall(detail::ActiveCall& call, std::string_view method, bool streams, detail::CallDraw draw,
                           std::string_view route)
    : call_(call), method_(method), route_(route), streams_(streams), begin_(call.sink().loop().now()), draw_(draw) {}

std::size_t IncomingCall::request_bytes() const noexcept {
  const detail::IncomingRequest& request = call_.request();
  return request.body.size() + request.payload.size() + request.attachment.size();
}

// Writes all entries but those of `key`, and then the new one.
Result<void> IncomingCall::change(std::string_view key, const std::string_view* value) {
  const Bytes before = metadata().bytes();
  wire::MetadataSize size;
  std::string_view name;
  std::string_view text;
  for (wire::MetadataReader reader(before); reader.next(name, text);) {
    if (name != key) size.add(name, text);
  }
  if (value != nullptr) {
    size.add(key, *value);
    if (!size.fits()) return fail(ErrorCode::limit_exceeded, size.too_large_text());
  }
  Buffer after = Buffer::allocate(size.bytes());
  std::byte* to = after.mutable_data();
  for (wire::MetadataReader reader(before); reader.next(name, text);) {
    if (name != key) to = wire::write_metadata_entry(to, name, text);
  }
  if (value != nullptr) wire::write_metadata_entry(to, key, *value);
  metadata_ = std::move(after);
  changed_ = true;
  return {};
}

}  // namespace hawser
