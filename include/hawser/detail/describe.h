#pragma once

#include <memory>
#include <string>
#include <utility>

#include "hawser/detail/method_facts.h"

// Descriptions of methods and their types, made when somebody asks for them. A method costs one function that lists
// functions, a type one function that sets constants. hawser/schema.h has the result.
//   DescribeType   describes one type; its address identifies the type
//   TypeFacts      the parts of the description of a type
//   SchemaBuilder  receives the descriptions. set() sets the type that is being described, set_message() the name of
//                  the protobuf message that is being described. add_file() adds the FileDescriptorProto of a .proto
//                  file, encoded; it returns false if the file was added before. set_method() sets the method; a null
//                  stands for a stream, or a result, that the method does not have.
//   NoObject       memory that is never read: its members have addresses, whose names a compiler prints
//   type_text()    the name of a type and the names of `parts`, which are the addresses of fields or the values of an
//                  enumeration, as the compiler prints them
namespace hawser::detail {

class SchemaBuilder;
using DescribeType = void (*)(SchemaBuilder&);

struct TypeFacts {
  char kind;             // The letter of the type's description in docs/wire-format.md.
  const char* text;      // type_text() of the type.
  std::size_t size = 0;  // Bytes of a number, elements of an array, or fields of the first version of a struct.
  const DescribeType* parts = nullptr;        // Null after the last one.
  const std::uint32_t* signatures = nullptr;  // The signatures of appended fields.
  std::uint64_t ratio[2] = {};                // The unit of a duration, as a part of a second.
  std::string_view codec = {};                // Signature of a type with a codec of its own.
};

class SchemaBuilder {
 public:
  virtual void set(const TypeFacts& facts) = 0;
  virtual void set_message(std::string name) = 0;
  virtual bool add_file(std::string_view name, std::string (*encode)(const void* file), const void* file) = 0;
  virtual void set_method(const DescribeType* arguments, DescribeType incoming, DescribeType outgoing,
                          DescribeType result) = 0;
};

template <class T>
union NoObject {
  char none;
  T value;
  constexpr NoObject() noexcept : none() {}
  constexpr ~NoObject() {}
};
template <class T>
inline NoObject<T> no_object;
template <class T>
struct FieldAddress {
  const T* address;
};

template <class T, auto... parts>
const char* type_text() noexcept {
  return __PRETTY_FUNCTION__;
}
template <class T, std::size_t... i>
const char* struct_text(std::index_sequence<i...>) noexcept {
  return type_text<T, FieldAddress{std::addressof(std::get<i>(codec::fields_of(no_object<T>.value)))}...>();
}
template <class T, int... i>
const char* enum_text(std::integer_sequence<int, i...>) noexcept {
  if constexpr (requires { T{0}; }) return type_text<T, static_cast<T>(i)...>();  // The underlying type is fixed.
  return type_text<T>();
}
inline constexpr int named_enumerators = 64;  // Values from 0 to one less than this are known by name.

template <class T>
void describe_type(SchemaBuilder& out);
template <class Tuple>
struct PartsOf;
template <class... T>
struct PartsOf<std::tuple<T...>> {
  static constexpr DescribeType list[] = {&describe_type<std::remove_const_t<T>>..., nullptr};
  static constexpr std::uint32_t signatures[] = {codec::type_signature<T>..., 0};
};
template <class... T>
inline constexpr const DescribeType* parts = PartsOf<std::tuple<T...>>::list;

template <class T>
void describe_type(SchemaBuilder& out) {
  using codec::Codec, codec::TypeKind;
  constexpr TypeKind kind = codec::kind_of<T>;
  if constexpr (requires { Codec<T>::signature; }) {
    out.set({.kind = 'X', .text = type_text<T>(), .codec = Codec<T>::signature});
    if constexpr (requires { &Codec<T>::hawser_describe; }) Codec<T>::hawser_describe(out);
  } else if constexpr (std::is_enum_v<T>) {
    constexpr char letter = std::is_signed_v<std::underlying_type_t<T>> ? 'i' : 'u';
    const char* const text = enum_text<T>(std::make_integer_sequence<int, named_enumerators>());
    out.set({.kind = kind == TypeKind::boolean ? 'b' : letter, .text = text, .size = sizeof(T)});
  } else if constexpr (kind == TypeKind::boolean || kind == TypeKind::scalar) {
    out.set({.kind = kind == TypeKind::boolean ? 'b' : codec::scalar_letter<T>(), .text = "", .size = sizeof(T)});
  } else if constexpr (kind == TypeKind::view || kind == TypeKind::contiguous || kind == TypeKind::growable ||
                       kind == TypeKind::set || kind == TypeKind::optional) {
    constexpr char letter = kind == TypeKind::set ? 'K' : kind == TypeKind::optional ? 'O' : 'S';
    out.set({.kind = letter, .text = "", .parts = parts<typename T::value_type>});
  } else if constexpr (kind == TypeKind::array) {
    out.set({.kind = 'A', .text = "", .size = codec::array_count<T>, .parts = parts<typename Codec<T>::Element>});
  } else if constexpr (kind == TypeKind::map) {
    out.set({.kind = 'M', .text = "", .parts = parts<typename T::key_type, typename T::mapped_type>});
  } else if constexpr (kind == TypeKind::pointer) {
    out.set({.kind = 'O', .text = "", .parts = parts<typename T::element_type>});
  } else if constexpr (kind == TypeKind::duration) {
    out.set({.kind = 'D', .text = "", .parts = parts<typename T::rep>, .ratio = {T::period::num, T::period::den}});
  } else if constexpr (kind == TypeKind::tuple || kind == TypeKind::variant) {
    out.set({.kind = kind == TypeKind::tuple ? 'T' : 'V',
             .text = "",
             .parts = PartsOf<typename codec::AsTuple<T>::type>::list});
  } else if constexpr (kind == TypeKind::aggregate) {
    using Parts = PartsOf<codec::field_types<T>>;
    const char* const text = struct_text<T>(std::make_index_sequence<codec::field_count<T>>());
    if constexpr (codec::is_evolvable<T>) {
      constexpr std::size_t base = T::hawser_base_fields;
      out.set({.kind = 'E', .text = text, .size = base, .parts = Parts::list, .signatures = Parts::signatures});
    } else {
      out.set({.kind = '(', .text = text, .parts = Parts::list});
    }
  }
}

template <class T>
inline constexpr DescribeType describe_or_null = &describe_type<T>;
template <>
inline constexpr DescribeType describe_or_null<void> = nullptr;
template <>
inline constexpr DescribeType describe_or_null<NoStream> = nullptr;
template <auto F>
void describe_method(SchemaBuilder& out) {
  using Facts = MethodFacts<F>;
  out.set_method(PartsOf<typename Facts::args>::list, describe_or_null<typename Facts::incoming>,
                 describe_or_null<typename Facts::outgoing>, describe_or_null<typename Facts::result>);
}

}  // namespace hawser::detail
