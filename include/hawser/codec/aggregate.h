#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec/fields.h"
#include "hawser/codec/signature.h"
#include "hawser/codec/traits.h"

namespace hawser::codec {

template <class T>
  requires(kind_of<T> == TypeKind::tuple)
struct Codec<T> {
  using Facts = TupleFacts<typename AsTuple<T>::type>;
  static constexpr bool is_fixed = Facts::all_fixed;
  static constexpr std::size_t bytes_min = Facts::bytes_sum;
  static constexpr std::size_t empty_heap_bytes = Facts::empty_heap_sum;

  static void size(Sizer& sizer, const T& value) {
    std::apply([&](const auto&... element) { (measure_one(sizer, element), ...); }, value);
  }
  static void encode(Encoder& encoder, const T& value) {
    std::apply([&](const auto&... element) { (encode_one(encoder, element), ...); }, value);
  }
  static bool decode(Decoder& decoder, T& value) {
    return std::apply([&](auto&... element) { return (decode_one(decoder, element) && ...); }, value);
  }
};

// A plain struct: the encodings of its fields in order.
template <class T>
  requires(kind_of<T> == TypeKind::aggregate && !is_evolvable<T>)
struct Codec<T> {
  using Facts = TupleFacts<field_types<T>>;
  // Without padding the memory image is the concatenation of the fields.
  static constexpr bool is_block =
      Facts::all_blocks && Facts::bytes_sum == sizeof(T) && std::is_trivially_copyable_v<T>;
  static constexpr bool is_fixed = Facts::all_fixed;
  static constexpr std::size_t bytes_min = Facts::bytes_sum;
  static constexpr std::size_t empty_heap_bytes = Facts::empty_heap_sum;

  static void size(Sizer& sizer, const T& value) {
    std::apply([&](const auto&... field) { (measure_one(sizer, field), ...); }, fields_of(value));
  }
  static void encode(Encoder& encoder, const T& value) {
    if constexpr (is_block) {
      encoder.write(&value, sizeof(T));
    } else {
      std::apply([&](const auto&... field) { (encode_one(encoder, field), ...); }, fields_of(value));
    }
  }
  static bool decode(Decoder& decoder, T& value) {
    if constexpr (is_block) {
      return decoder.copy(&value, sizeof(T), "struct");
    } else {
      return std::apply([&](auto&... field) { return (decode_one(decoder, field) && ...); }, fields_of(value));
    }
  }
};

// A struct that states the number of fields of its first version and may have more fields since:
//   u32 length of the rest | base fields | (u32 signature of the field's type, field)...
// A decoder that knows fewer fields uses the length to skip the rest. A decoder that knows more fields leaves the
// missing ones at their default. Appended fields are in the body at any size, because a decoder that skips them could
// not find their pieces in the payload.
template <class T>
  requires(kind_of<T> == TypeKind::aggregate && is_evolvable<T>)
struct Codec<T> {
  using Fields = field_types<T>;
  static constexpr std::size_t count = std::tuple_size_v<Fields>;
  static constexpr std::size_t base = T::hawser_base_fields;
  static_assert(base <= count,
                "hawser: hawser_base_fields says how many of the fields there were in the first version");
  static constexpr std::size_t bytes_min = sizeof(std::uint32_t) + TupleFacts<FirstOf<base, Fields>>::bytes_sum;
  static constexpr std::size_t empty_heap_bytes = TupleFacts<Fields>::empty_heap_sum;

  static void size(Sizer& sizer, const T& value) {
    const std::size_t before = sizer.size().body;
    const auto fields = fields_of(value);
    sizer.add(sizeof(std::uint32_t));
    for_range<0, base>([&]<std::size_t i> { measure_one(sizer, std::get<i>(fields)); });
    const std::size_t outer = sizer.set_out_of_band_min(SIZE_MAX);
    for_range<base, count>([&]<std::size_t i> {
      sizer.add(sizeof(std::uint32_t));
      measure_one(sizer, std::get<i>(fields));
    });
    sizer.set_out_of_band_min(outer);
    if (sizer.size().body - before > UINT32_MAX) [[unlikely]]
      sizer.set_too_large();
  }
  static void encode(Encoder& encoder, const T& value) {
    const auto fields = fields_of(value);
    std::byte* const length = encoder.begin_length();
    for_range<0, base>([&]<std::size_t i> { encode_one(encoder, std::get<i>(fields)); });
    const std::size_t outer = encoder.set_out_of_band_min(SIZE_MAX);
    for_range<base, count>([&]<std::size_t i> {
      encoder.write_scalar(type_signature<std::tuple_element_t<i, Fields>>);
      encode_one(encoder, std::get<i>(fields));
    });
    encoder.set_out_of_band_min(outer);
    encoder.end_length(length);
  }
  static bool decode(Decoder& decoder, T& value) {
    const auto fields = fields_of(value);
    std::uint32_t length = 0;
    if (!decoder.read_scalar(length, "struct")) return false;
    if (length > decoder.available()) [[unlikely]]
      return decoder.fail("struct", "longer than the message");
    const std::byte* const outer = decoder.narrow(length);
    const bool base_decoded = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return (decode_one(decoder, std::get<i>(fields)) && ...);
    }(std::make_index_sequence<base>());
    if (!base_decoded) return false;
    const bool payload_allowed = decoder.set_payload_allowed(false);
    const bool rest_decoded = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return (decode_appended(decoder, std::get<base + i>(fields)) && ...);
    }(std::make_index_sequence<count - base>());
    if (!rest_decoded) return false;
    decoder.set_payload_allowed(payload_allowed);
    decoder.widen(outer);
    return true;
  }

 private:
  template <std::size_t first, std::size_t last, class F>
  static void for_range(F f) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (f.template operator()<first + i>(), ...);
    }(std::make_index_sequence<last - first>());
  }
  template <class Field>
  static bool decode_appended(Decoder& decoder, Field& field) {
    if (decoder.available() == 0) return true;
    std::uint32_t signature = 0;
    if (!decoder.read_scalar(signature, "appended field")) return false;
    if (signature != type_signature<Field>) [[unlikely]] {
      return decoder.fail("appended field", "the sender gave it another type: fields may only be added at the end");
    }
    return decode_one(decoder, field);
  }
};

}  // namespace hawser::codec
