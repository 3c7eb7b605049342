#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/received.h"
#include "hawser/detail/stream_core.h"
#include "hawser/error.h"
#include "hawser/task.h"

namespace hawser {

// The receiving end of a stream. In a handler it is a parameter behind the arguments and receives the client's items.
// On a client it receives the handler's items. It belongs to its call. Only one reader may be in use at a time. Loop's
// thread only.
template <class T>
class Reader {
 public:
  Reader() noexcept = default;
  explicit Reader(detail::StreamCore& core) noexcept : core_(core.shared_from_this()) {}

  // Waits for the next item. Returns an empty optional after the peer has ended the stream, and an error if the call or
  // the connection ended before that. Items that were received before the call ended can still be read afterwards.
  Task<Result<std::optional<codec::Owned<T>>>> next() {
    static_assert(!codec::contains_view<codec::Owned<T>>,
                  "hawser: the item has views among its fields, which would point to freed memory: use read_view()");
    return read<codec::Owned<T>>();
  }

  // Like next(), but gives the item in place, without a copy of its data: T with std::string_view in place of
  // std::string, and std::span<const E> in place of a std::vector of numbers or enumerations. Its views refer to the
  // received message. They stay valid until the next read of this stream, and as long as this reader.
  Task<Result<std::optional<typename detail::InPlace<T>::type>>> read_view() {
    return read<typename detail::InPlace<T>::type>();
  }

 private:
  friend struct detail::StreamAccess;
  template <class Value>
  Task<Result<std::optional<Value>>> read() {
    const std::shared_ptr<detail::StreamCore> kept = core_;
    if (!kept) co_return fail(ErrorCode::invalid_argument, detail::no_stream);
    detail::StreamCore& core = *kept;
    core.end_view();
    co_await core.until_readable();
    Result<detail::StreamCore::Viewed*> item = core.take_view();
    if (!item) co_return std::unexpected(std::move(item.error()));
    if (*item == nullptr) co_return std::optional<Value>();
    codec::Decoder decoder((*item)->item.body.bytes(), (*item)->item.payload.bytes(), core.decode_limits(),
                           &(*item)->arena);
    std::tuple<Value> value;
    const bool decoded = codec::decode_all(decoder, value);
    if constexpr (!codec::contains_view<Value>) core.end_view();
    if (!decoded) co_return std::unexpected(decoder.error());
    co_return std::optional<Value>(std::move(std::get<0>(value)));
  }

  std::shared_ptr<detail::StreamCore> core_;
};

// The sending end of a stream; see Reader. Only one writer may be in use at a time. Loop's thread only.
template <class T>
class Writer {
  // Small values and views are passed by value: a temporary to which an argument was converted would be destroyed
  // before the task runs.
  using Given = std::conditional_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 64, T, const T&>;

 public:
  Writer() noexcept = default;
  explicit Writer(detail::StreamCore& core) noexcept : core_(core.shared_from_this()) {}

  // Keeps `item` in the task.
  Task<Result<void>> write(T&& item)
    requires std::is_reference_v<Given>
  {
    return send<T>(core_, std::move(item));
  }
  // Sends `item` when the peer has granted enough credit. A variable, or the memory that a view refers to, must stay
  // valid until the task has completed. Fails if the call or the connection has ended, and with limit_exceeded if the
  // item is larger than message_bytes_max.
  Task<Result<void>> write(Given item) { return send<Given>(core_, item); }

  // Ends the stream: this side sends no more items. Happens by itself when the handler returns a result. A handler that
  // fails does not end it before: the reader receives the error in place of the end.
  void end() {
    if (core_) core_->end();
  }

 private:
  friend struct detail::StreamAccess;
  template <class Item>
  static Task<Result<void>> send(std::shared_ptr<detail::StreamCore> kept, Item item) {
    if (!kept) co_return fail(ErrorCode::invalid_argument, detail::no_stream);
    detail::StreamCore& core = *kept;
    // A loop, because credit or room in the backlog may be used up again before this writer is resumed.
    do {
      co_await core.until_writable();
    } while (!core.writable());
    if (std::optional<Error> error = core.write_error()) co_return std::unexpected(std::move(*error));
    const codec::EncodedSize size = codec::encoded_size(item);
    if (size.too_large) co_return fail(detail::StreamCore::not_encoded(size));
    std::byte* const body = core.begin_item(size);
    if (body == nullptr) {
      co_return fail(ErrorCode::limit_exceeded, "the item passes message_bytes_max or the connection has ended");
    }
    detail::ConstBuffers pieces(size.pieces);
    codec::Encoder encoder(body, pieces.data());
    codec::encode_all(encoder, item);
    if (size.pieces == 0) {
      core.end_item({}, nullptr);
      co_return Result<void>{};
    }
    detail::ItemLoan loan(core.channel());
    core.end_item(pieces.span(), &loan);
    co_await loan;
    // The loan also ends when the item is lost with the connection.
    if (std::optional<Error> error = core.write_error()) co_return std::unexpected(std::move(*error));
    co_return Result<void>{};
  }
  std::shared_ptr<detail::StreamCore> core_;
};

}  // namespace hawser
