#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hawser/codec/traits.h"

namespace hawser::codec {

template <class T>
  requires(kind_of<T> == TypeKind::boolean)
struct Codec<T> {
  static constexpr bool is_fixed = true;
  static constexpr std::size_t bytes_min = 1;
  static void encode(Encoder& encoder, T value) { encoder.write_scalar(static_cast<std::uint8_t>(value)); }
  static bool decode(Decoder& decoder, T& value) {
    std::uint8_t byte = 0;
    if (!decoder.read_scalar(byte, "bool")) return false;
    if (byte > 1) [[unlikely]]
      return decoder.fail("bool", "neither 0 nor 1");
    value = static_cast<T>(byte == 1);
    return true;
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::scalar)
struct Codec<T> {
  static constexpr bool is_block = true;
  static constexpr bool is_fixed = true;
  static constexpr std::size_t bytes_min = sizeof(T);
  static void encode(Encoder& encoder, T value) { encoder.write_scalar(value); }
  static bool decode(Decoder& decoder, T& value) { return decoder.read_scalar(value, "number"); }
};

// Heap memory in bytes of a sequence of `count` default-constructed elements.
template <class Sequence>
constexpr std::size_t memory_bytes(std::size_t count) noexcept {
  using Element = typename Sequence::value_type;
  constexpr std::size_t each =
      sizeof(Element) + empty_heap_bytes<Element> + (HasNodes<Sequence> ? node_overhead_bytes : 0);
  return count == 0 ? 0 : count * each + allocation_overhead_bytes;
}

// The part that the codecs of all counted sequences share.
template <class Sequence, class Element>
struct SequenceSizer {
  static constexpr std::size_t bytes_min = sizeof(std::uint32_t);

  static void size(Sizer& sizer, const Sequence& value) {
    if constexpr (is_block<Element>) {
      sizer.add_blocks(value.size(), sizeof(Element));
    } else {
      sizer.add_count(value.size());
      if constexpr (is_fixed<Element>) {
        sizer.add(value.size() * codec::bytes_min<Element>);
      } else {
        if (value.size() == 0 || !sizer.enter()) return;
        for (const auto& element : value) measure_one<Element>(sizer, element);
        sizer.leave();
      }
    }
  }
  static void encode(Encoder& encoder, const Sequence& value) {
    if constexpr (is_block<Element>) {
      encoder.write_blocks(value.data(), value.size(), sizeof(Element));
    } else {
      encoder.write_count(value.size());
      for (const auto& element : value) encode_one<Element>(encoder, element);
    }
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::view)
struct Codec<T> : SequenceSizer<T, std::remove_const_t<typename T::value_type>> {
  using Element = typename T::value_type;

  static bool decode(Decoder& decoder, T& value) {
    constexpr bool is_read_only = std::is_const_v<std::remove_pointer_t<decltype(value.data())>>;
    static_assert(is_read_only, "hawser: a received span is read-only: take std::span<const T>");
    static_assert(is_block<std::remove_const_t<Element>>,
                  "hawser: a received span must be of numbers, enumerations or structs of such without padding, which "
                  "can be read in place; take a std::vector");
    const std::byte* data = nullptr;
    std::size_t count = 0;
    if (!decoder.take_blocks(sizeof(Element), data, count, "sequence")) return false;
    if constexpr (alignof(Element) > 1) {
      static_assert(alignof(Element) <= DecodeArena::alignment, "hawser: take a std::vector of over-aligned elements");
      if (count == 0) {
        value = T();
        return true;
      }
      if (!decoder.align(data, count * sizeof(Element), alignof(Element), "sequence")) return false;
    }
    if constexpr (is_read_only) value = T(reinterpret_cast<const Element*>(data), count);
    return true;
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::contiguous)
struct Codec<T> : SequenceSizer<T, typename T::value_type> {
  using Element = typename T::value_type;

  static bool decode(Decoder& decoder, T& value) {
    std::size_t count = 0;
    if constexpr (is_block<Element>) {
      const std::byte* data = nullptr;
      if (!decoder.take_blocks(sizeof(Element), data, count, "sequence")) return false;
      if (!decoder.charge(memory_bytes<T>(count), "sequence")) return false;
      if (reinterpret_cast<std::uintptr_t>(data) % alignof(Element) == 0) [[likely]] {
        const auto* elements = reinterpret_cast<const Element*>(data);
        value.assign(elements, elements + count);
      } else {
        value.resize(count);
        if (count != 0) detail::copy_bytes(value.data(), data, count * sizeof(Element));
      }
      return true;
    } else {
      if (!decoder.read_count(count, codec::bytes_min<Element>, "sequence")) return false;
      if (!decoder.charge(memory_bytes<T>(count), "sequence")) return false;
      value.resize(count);
      if (count == 0) return true;
      if (!decoder.enter("sequence")) return false;
      for (Element& element : value) {
        if (!decode_one(decoder, element)) return false;
      }
      decoder.leave();
      return true;
    }
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::growable)
struct Codec<T> {
  using Element = typename T::value_type;
  static constexpr std::size_t bytes_min = sizeof(std::uint32_t);
  static constexpr std::size_t empty_heap_bytes = HasChunks<T> ? empty_deque_bytes(sizeof(Element)) : 0;

  static void size(Sizer& sizer, const T& value) {
    sizer.add_count(value.size());
    if (value.size() == 0 || !sizer.enter()) return;
    for (const Element& element : value) measure_one<Element>(sizer, element);
    sizer.leave();
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_count(value.size());
    for (const Element& element : value) encode_one<Element>(encoder, element);
  }
  static bool decode(Decoder& decoder, T& value) {
    std::size_t count = 0;
    if constexpr (is_block<Element>) {
      // The sender may have encoded a std::vector, whose elements can be out of band.
      const std::byte* data = nullptr;
      if (!decoder.take_blocks(sizeof(Element), data, count, "sequence")) return false;
      if (!decoder.charge(memory_bytes<T>(count), "sequence")) return false;
      value.resize(count);
      for (Element& element : value) {
        detail::copy_bytes(&element, data, sizeof(Element));
        data += sizeof(Element);
      }
      return true;
    } else {
      if (!decoder.read_count(count, codec::bytes_min<Element>, "sequence")) return false;
      if (!decoder.charge(memory_bytes<T>(count), "sequence")) return false;
      value.resize(count);
      if (count == 0) return true;
      if (!decoder.enter("sequence")) return false;
      for (auto place = value.begin(); place != value.end(); ++place) {
        if constexpr (std::is_same_v<decltype(*place), Element&>) {
          if (!decode_one(decoder, *place)) return false;
        } else {  // std::vector<bool> has no element object to decode into.
          Element element{};
          if (!decode_one(decoder, element)) return false;
          *place = element;
        }
      }
      decoder.leave();
      return true;
    }
  }
};

// The number of elements is fixed, so no count is encoded. The elements are always in the body.
template <class T>
  requires(kind_of<T> == TypeKind::array)
struct Codec<T> {
  using Element = std::remove_reference_t<decltype(std::declval<T&>()[0])>;
  static constexpr bool is_block = codec::is_block<Element> && array_count<T> != 0;
  static constexpr bool is_fixed = codec::is_fixed<Element> || array_count<T> == 0;
  static constexpr std::size_t bytes_min = codec::bytes_min<Element> * array_count<T>;
  static constexpr std::size_t empty_heap_bytes = codec::empty_heap_bytes<Element> * array_count<T>;

  static void size(Sizer& sizer, const T& value) {
    for (const Element& element : value) measure_one(sizer, element);
  }
  static void encode(Encoder& encoder, const T& value) {
    if constexpr (is_block) {
      encoder.write(&value, sizeof(T));
    } else {
      for (const Element& element : value) encode_one(encoder, element);
    }
  }
  static bool decode(Decoder& decoder, T& value) {
    if constexpr (is_block) {
      return decoder.copy(&value, sizeof(T), "array");
    } else {
      for (Element& element : value) {
        if (!decode_one(decoder, element)) return false;
      }
      return true;
    }
  }
};

}  // namespace hawser::codec
