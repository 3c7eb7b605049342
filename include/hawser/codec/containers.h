#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec/traits.h"

namespace hawser::codec {

// The type of an element to insert. In contrast to value_type, its key is not const.
template <class T>
struct AssociativeEntry {
  using type = typename T::key_type;
};
template <class T>
  requires(kind_of<T> == TypeKind::map)
struct AssociativeEntry<T> {
  using type = std::pair<typename T::key_type, typename T::mapped_type>;
};

// A std::unordered_* container.
template <class T>
concept HashContainer = requires(T& value, const typename T::key_type& key) {
  value.begin(value.bucket(key));
  value.key_eq()(key, key);
  value.reserve(std::size_t{});
};

// Called before `key` is inserted: adds to `passed` the number of entries in its bucket that the insertion must
// compare. Counting takes as long as inserting, so keys that were chosen to collide are refused before they take
// quadratic time.
template <HashContainer T>
void add_passed(const T& value, const typename T::key_type& key, std::size_t& passed) {
  const auto equal = value.key_eq();
  const std::size_t bucket = value.bucket(key);
  for (auto entry = value.begin(bucket); entry != value.end(bucket); ++entry, ++passed) {
    if constexpr (kind_of<T> == TypeKind::map) {
      if (equal(entry->first, key)) return;
    } else {
      if (equal(*entry, key)) return;
    }
  }
}

template <class T>
  requires(kind_of<T> == TypeKind::set || kind_of<T> == TypeKind::map)
struct Codec<T> {
  using Entry = typename AssociativeEntry<T>::type;
  static constexpr std::size_t bytes_min = sizeof(std::uint32_t);

  static void size(Sizer& sizer, const T& value) {
    sizer.add_count(value.size());
    if (value.size() == 0 || !sizer.enter()) return;
    for (const auto& entry : value) {
      if constexpr (kind_of<T> == TypeKind::map) {
        measure_one(sizer, entry.first);
        measure_one(sizer, entry.second);
      } else {
        measure_one(sizer, entry);
      }
    }
    sizer.leave();
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_count(value.size());
    for (const auto& entry : value) {
      if constexpr (kind_of<T> == TypeKind::map) {
        encode_one(encoder, entry.first);
        encode_one(encoder, entry.second);
      } else {
        encode_one(encoder, entry);
      }
    }
  }
  static bool decode(Decoder& decoder, T& value) {
    constexpr const char* what = kind_of<T> == TypeKind::map ? "map" : "set";
    std::size_t count = 0;
    if (!decoder.read_count(count, codec::bytes_min<Entry>, what)) return false;
    if (!decoder.charge(count * (sizeof(Entry) + node_overhead_bytes + codec::empty_heap_bytes<Entry>), what)) {
      return false;
    }
    value.clear();
    if (count == 0) return true;
    if (!decoder.enter(what)) return false;
    [[maybe_unused]] std::size_t passed = 0;
    // Allocates all buckets at once. Growing tables would cost as much in an attack, and that cost would not be
    // counted.
    if constexpr (HashContainer<T>) value.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      Entry entry{};
      if (!decode_one(decoder, entry)) return false;
      if constexpr (HashContainer<T>) {
        if (decoder.may_flood(count)) {
          add_passed(value, key_of(entry), passed);
          if (!decoder.check_passes(passed, i, what)) return false;
        }
      }
      value.insert(std::move(entry));
      // A multimap or multiset inserts every key. Other containers do not insert a repeated one.
      if (value.size() != i + 1) [[unlikely]]
        return decoder.fail(what, "a key comes twice");
    }
    decoder.leave();
    return true;
  }

 private:
  static const typename T::key_type& key_of(const Entry& entry) noexcept {
    if constexpr (kind_of<T> == TypeKind::map) {
      return entry.first;
    } else {
      return entry;
    }
  }
};

// The u8 in front of an optional value.
inline bool read_presence(Decoder& decoder, bool& present, const char* what) noexcept {
  std::uint8_t byte = 0;
  if (!decoder.read_scalar(byte, what)) return false;
  if (byte > 1) [[unlikely]]
    return decoder.fail(what, "presence is neither 0 nor 1");
  present = byte == 1;
  return true;
}

template <class T>
  requires(kind_of<T> == TypeKind::optional)
struct Codec<T> {
  static constexpr std::size_t bytes_min = 1;

  static void size(Sizer& sizer, const T& value) {
    sizer.add(1);
    if (value.has_value()) measure_one(sizer, *value);
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_scalar(static_cast<std::uint8_t>(value.has_value()));
    if (value.has_value()) encode_one(encoder, *value);
  }
  static bool decode(Decoder& decoder, T& value) {
    bool present = false;
    if (!read_presence(decoder, present, "optional")) return false;
    value.reset();
    if (!present) return true;
    if constexpr (constexpr std::size_t heap = codec::empty_heap_bytes<typename T::value_type>; heap != 0) {
      if (!decoder.charge(heap, "optional")) return false;
    }
    return decode_one(decoder, value.emplace());
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::pointer)
struct Codec<T> {
  using Element = typename T::element_type;
  static constexpr std::size_t bytes_min = 1;

  static void size(Sizer& sizer, const T& value) {
    sizer.add(1);
    if (value == nullptr || !sizer.enter()) return;
    measure_one(sizer, *value);
    sizer.leave();
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_scalar(static_cast<std::uint8_t>(value != nullptr));
    if (value != nullptr) encode_one(encoder, *value);
  }
  static bool decode(Decoder& decoder, T& value) {
    bool present = false;
    if (!read_presence(decoder, present, "pointer")) return false;
    value.reset();
    if (!present) return true;
    constexpr std::size_t bytes = sizeof(Element) + allocation_overhead_bytes + codec::empty_heap_bytes<Element>;
    if (!decoder.charge(bytes, "pointer") || !decoder.enter("pointer")) return false;
    value.reset(new Element());
    if (!decode_one(decoder, *value)) return false;
    decoder.leave();
    return true;
  }
};

template <class T>
struct Alternatives;
template <template <class...> class V, class... T>
struct Alternatives<V<T...>> {
  using type = std::tuple<T...>;
};

template <class T>
  requires(kind_of<T> == TypeKind::variant)
struct Codec<T> {
  static constexpr std::size_t bytes_min = 1;
  static constexpr std::size_t count = std::tuple_size_v<typename Alternatives<T>::type>;
  static constexpr std::uint8_t valueless = 255;  // A variant without a value. Decoding refuses it.
  static_assert(count <= valueless, "hawser: a variant that travels has at most 255 alternatives");

  static void size(Sizer& sizer, const T& value) {
    sizer.add(1);
    visit(value, [&](const auto& alternative) { measure_one(sizer, alternative); });
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_scalar(value.valueless_by_exception() ? valueless : static_cast<std::uint8_t>(value.index()));
    visit(value, [&](const auto& alternative) { encode_one(encoder, alternative); });
  }
  static bool decode(Decoder& decoder, T& value) {
    std::uint8_t index = 0;
    if (!decoder.read_scalar(index, "variant")) return false;
    if (index >= count) [[unlikely]]
      return decoder.fail("variant", "no such alternative");
    if (const std::size_t heap = heap_bytes_of(index); heap != 0 && !decoder.charge(heap, "variant")) return false;
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      bool decoded = false;
      static_cast<void>(((index == i && (decoded = decode_one(decoder, value.template emplace<i>()), true)) || ...));
      return decoded;
    }(std::make_index_sequence<count>());
  }

 private:
  static std::size_t heap_bytes_of(std::uint8_t index) noexcept {
    return []<class... A>(std::tuple<A...>*, std::size_t i) -> std::size_t {
      if constexpr (((codec::empty_heap_bytes<A> == 0) && ...)) return 0;
      constexpr std::size_t bytes[] = {codec::empty_heap_bytes<A>...};
      return bytes[i];
    }(static_cast<typename Alternatives<T>::type*>(nullptr), index);
  }
  // Found by argument-dependent lookup, so that <variant> is included only by code that uses one.
  template <class F>
  static void visit(const T& value, F f) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      static_cast<void>(((value.index() == i && (f(*get_if<i>(&value)), true)) || ...));
    }(std::make_index_sequence<count>());
  }
};

template <class T>
  requires(kind_of<T> == TypeKind::duration)
struct Codec<T> {
  using Representation = typename T::rep;
  static constexpr bool is_block = codec::is_block<Representation> && sizeof(T) == sizeof(Representation);
  static constexpr bool is_fixed = codec::is_fixed<Representation>;
  static constexpr std::size_t bytes_min = codec::bytes_min<Representation>;

  static void size(Sizer& sizer, const T& value) { measure_one(sizer, value.count()); }
  static void encode(Encoder& encoder, const T& value) { encode_one(encoder, value.count()); }
  static bool decode(Decoder& decoder, T& value) {
    Representation count{};
    if (!decode_one(decoder, count)) return false;
    value = T(count);
    return true;
  }
};

}  // namespace hawser::codec
