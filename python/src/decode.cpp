#include <cstring>
#include <string>
#include <utility>

#include "hawser/codec/decoder.h"
#include "hawser/codec/encoder.h"
#include "plan.h"

namespace hawser::python {
namespace {

using codec::Decoder;
using schema::Kind;

// Memory of a Python object and of its place in a container.
constexpr std::size_t object_bytes = 48;
// Memory of a message for each of its bytes, about: its class does not state it.
constexpr std::size_t message_factor = 4;

template <class T>
T number_at(const std::byte* data) noexcept {
  T number;
  std::memcpy(&number, data, sizeof(T));
  return number;
}

PyObject* number_object(const PlanType& type, const std::byte* data) {
  switch (type.kind) {
    case Kind::signed_integer:
      switch (type.size) {
        case 1: return PyLong_FromLong(number_at<std::int8_t>(data));
        case 2: return PyLong_FromLong(number_at<std::int16_t>(data));
        case 4: return PyLong_FromLong(number_at<std::int32_t>(data));
        default: return PyLong_FromLongLong(number_at<std::int64_t>(data));
      }
    case Kind::unsigned_integer:
      switch (type.size) {
        case 1: return PyLong_FromUnsignedLong(number_at<std::uint8_t>(data));
        case 2: return PyLong_FromUnsignedLong(number_at<std::uint16_t>(data));
        case 4: return PyLong_FromUnsignedLong(number_at<std::uint32_t>(data));
        default: return PyLong_FromUnsignedLongLong(number_at<std::uint64_t>(data));
      }
    case Kind::floating:
      return PyFloat_FromDouble(type.size == 4 ? static_cast<double>(number_at<float>(data)) : number_at<double>(data));
    default: return nullptr;
  }
}

class Reader {
 public:
  Reader(const Plan& plan, const Message& message) noexcept : plan_(plan), message_(message) {}

  // Null: the decoder has failed, or a Python exception is set.
  PyObject* value(Decoder& in, std::uint32_t index, int depth) {
    const PlanType& type = plan_.at(index);
    if (depth > depth_max) return failed(in.fail_limit("value", "nested more than 64 deep"));
    switch (type.kind) {
      case Kind::boolean: return boolean(in);
      case Kind::signed_integer:
      case Kind::unsigned_integer:
      case Kind::floating: return number(in, type);
      case Kind::character: return character(in, type);
      case Kind::sequence: return sequence(in, type, depth);
      case Kind::array: return array(in, type, depth);
      case Kind::set: return set(in, type, depth);
      case Kind::map: return map(in, type, depth);
      case Kind::optional: return optional(in, type, depth);
      case Kind::variant: return variant(in, type, depth);
      case Kind::duration: return duration(in, type);
      case Kind::tuple: return tuple(in, type.parts, depth);
      case Kind::structure: return structure(in, type, depth);
      case Kind::evolving: return evolving(in, type, depth);
      case Kind::message: return message(in, index, false);
      case Kind::custom: return failed(in.fail("value", "a type with a codec of its own has no form in Python yet"));
    }
    return nullptr;
  }
  // The only value of a body: a message has no length there.
  PyObject* sole(Decoder& in, std::uint32_t index) {
    return plan_.at(index).kind == Kind::message ? message(in, index, true) : value(in, index, 0);
  }

  PyObject* tuple(Decoder& in, const std::vector<std::uint32_t>& parts, int depth) {
    Reference made(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
    if (!made || !charge(in, parts.size())) return nullptr;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      PyObject* const one = value(in, parts[i], depth + 1);
      if (one == nullptr) return nullptr;
      PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), one);
    }
    return made.release();
  }
  PyObject* arguments(Decoder& in) {
    const std::vector<std::uint32_t>& types = plan_.description().arguments;
    if (types.size() != 1 || plan_.at(types[0]).kind != Kind::message) return tuple(in, types, 0);
    const Reference one(sole(in, types[0]));
    return one ? PyTuple_Pack(1, one.get()) : nullptr;
  }

 private:
  static PyObject* failed(bool) noexcept { return nullptr; }
  bool charge(Decoder& in, std::size_t objects) { return in.charge(objects * object_bytes, "value"); }

  static PyObject* boolean(Decoder& in) {
    std::uint8_t byte = 0;
    if (!in.read_scalar(byte, "bool")) return nullptr;
    if (byte > 1) return failed(in.fail("bool", "neither 0 nor 1"));
    return PyBool_FromLong(byte);
  }
  static PyObject* number(Decoder& in, const PlanType& type) {
    const std::byte* data = nullptr;
    if (!in.take(type.size, data, "number")) return nullptr;
    PyObject* const made = number_object(type, data);
    if (made == nullptr || !type.python) return made;
    // An enumeration. A value that the class does not know stays a number.
    const Reference plain(made);
    PyObject* const named = PyObject_CallOneArg(type.python.get(), made);
    if (named != nullptr || PyErr_ExceptionMatches(PyExc_ValueError) == 0) return named;
    PyErr_Clear();
    return Reference::borrow(made).release();
  }
  static PyObject* character(Decoder& in, const PlanType& type) {
    std::uint32_t code = 0;
    if (!in.copy(&code, type.size, "character")) return nullptr;
    if (code > 0x10'ffff) return failed(in.fail("character", "no code point of Unicode"));
    return PyUnicode_FromOrdinal(static_cast<int>(code));
  }

  PyObject* block(const PlanType& type, const std::byte* data, std::size_t size) {
    const auto length = static_cast<Py_ssize_t>(size);
    if (type.form == Form::text) {
      return PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(data), length, "surrogateescape");
    }
    const bool in_payload =
        size != 0 && data >= message_.payload.data() && data < message_.payload.data() + message_.payload.size();
    if (message_.keeper != nullptr && in_payload && (type.form == Form::view || message_.views)) {
      return slice_of(message_.keeper, Bytes(data, size));
    }
    Reference copy(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), length));
    if (!copy || type.form != Form::view) return copy.release();
    return PyMemoryView_FromObject(copy.get());
  }

  PyObject* sequence(Decoder& in, const PlanType& type, int depth) {
    const PlanType& element = plan_.at(type.parts[0]);
    std::size_t count = 0;
    const bool of_bytes = type.form == Form::text || type.form == Form::bytes || type.form == Form::view;
    if (element.fixed_bytes == 0) {
      if (!in.read_count(count, element.bytes_min, "sequence")) return nullptr;
      return elements(in, type, count, depth);
    }
    const std::byte* data = nullptr;
    if (!in.take_blocks(element.fixed_bytes, data, count, "sequence")) return nullptr;
    if (of_bytes) {
      if (!in.charge(count, "sequence")) return nullptr;
      return block(type, data, count);
    }
    Decoder items(Bytes(data, count * element.fixed_bytes), {}, decode_limits);
    if (!charge(in, count)) return nullptr;
    PyObject* const made = elements(items, type, count, depth);
    if (made == nullptr && PyErr_Occurred() == nullptr) in.fail("sequence", "an element has no valid value");
    return made;
  }
  // A list, or a tuple where the type was declared so.
  PyObject* elements(Decoder& in, const PlanType& type, std::size_t count, int depth) {
    const PlanType& element = plan_.at(type.parts[0]);
    const auto length = static_cast<Py_ssize_t>(count);
    if (!charge(in, count)) return nullptr;
    Reference made(PyList_New(length));
    if (!made) return nullptr;
    const bool numbers = !element.python && element.fixed_bytes != 0 &&
                         (element.kind == Kind::signed_integer || element.kind == Kind::unsigned_integer ||
                          element.kind == Kind::floating);
    const std::byte* data = nullptr;
    if (numbers && !in.take(count * element.size, data, "sequence")) return nullptr;
    for (Py_ssize_t i = 0; i < length; ++i) {
      PyObject* const one = numbers ? number_object(element, data + static_cast<std::size_t>(i) * element.size)
                                    : value(in, type.parts[0], depth + 1);
      if (one == nullptr) return nullptr;
      PyList_SET_ITEM(made.get(), i, one);
    }
    return type.form == Form::tuple ? PyList_AsTuple(made.get()) : made.release();
  }
  PyObject* array(Decoder& in, const PlanType& type, int depth) {
    const PlanType& element = plan_.at(type.parts[0]);
    // Each element takes a byte at least, or is charged below.
    if (element.bytes_min != 0 && type.size > in.available() / element.bytes_min) {
      return failed(in.fail("array", "the body has fewer bytes than its elements take"));
    }
    return elements(in, type, type.size, depth);
  }
  PyObject* set(Decoder& in, const PlanType& type, int depth) {
    std::size_t count = 0;
    if (!in.read_count(count, plan_.at(type.parts[0]).bytes_min, "set") || !charge(in, 2 * count)) return nullptr;
    Reference made(PySet_New(nullptr));
    if (!made) return nullptr;
    for (std::size_t i = 0; i < count; ++i) {
      const Reference key(value(in, type.parts[0], depth + 1));
      if (!key || PySet_Add(made.get(), key.get()) != 0) return nullptr;
    }
    return type.form == Form::frozen ? PyFrozenSet_New(made.get()) : made.release();
  }
  PyObject* map(Decoder& in, const PlanType& type, int depth) {
    std::size_t count = 0;
    const std::size_t least = plan_.at(type.parts[0]).bytes_min + plan_.at(type.parts[1]).bytes_min;
    if (!in.read_count(count, least, "map") || !charge(in, 3 * count)) return nullptr;
    Reference made(PyDict_New());
    if (!made) return nullptr;
    for (std::size_t i = 0; i < count; ++i) {
      const Reference key(value(in, type.parts[0], depth + 1));
      if (!key) return nullptr;
      const Reference mapped(value(in, type.parts[1], depth + 1));
      if (!mapped || PyDict_SetItem(made.get(), key.get(), mapped.get()) != 0) return nullptr;
    }
    return made.release();
  }
  PyObject* optional(Decoder& in, const PlanType& type, int depth) {
    std::uint8_t present = 0;
    if (!in.read_scalar(present, "optional")) return nullptr;
    if (present > 1) return failed(in.fail("optional", "presence is neither 0 nor 1"));
    return present == 1 ? value(in, type.parts[0], depth + 1) : Reference::borrow(Py_None).release();
  }
  PyObject* variant(Decoder& in, const PlanType& type, int depth) {
    std::uint8_t alternative = 0;
    if (!in.read_scalar(alternative, "variant")) return nullptr;
    if (alternative >= type.parts.size()) return failed(in.fail("variant", "no such alternative"));
    return value(in, type.parts[alternative], depth + 1);
  }
  PyObject* duration(Decoder& in, const PlanType& type) {
    const Reference count(number(in, plan_.at(type.parts[0])));
    if (!count) return nullptr;
    const double seconds = PyFloat_AsDouble(count.get()) * type.seconds;
    if (seconds == -1 && PyErr_Occurred() != nullptr) return nullptr;
    const Reference module(PyImport_ImportModule("datetime"));
    const Reference made(module ? PyObject_GetAttrString(module.get(), "timedelta") : nullptr);
    return made ? PyObject_CallFunction(made.get(), "id", 0, seconds) : nullptr;
  }

  // A message of Protocol Buffers, or its bytes where its class is not known.
  PyObject* message(Decoder& in, std::uint32_t index, bool whole) {
    const PlanType& type = plan_.at(index);
    std::uint32_t announced = 0;
    if (!whole && !in.read_scalar(announced, "message")) return nullptr;
    const std::size_t size = whole ? in.available() : announced;
    const std::byte* data = nullptr;
    if (!in.take(size, data, "message") || !in.charge(message_factor * size, "message")) return nullptr;
    Reference bytes(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), static_cast<Py_ssize_t>(size)));
    if (!bytes || !type.python) return bytes.release();
    const Reference parse(PyObject_GetAttrString(type.python.get(), "FromString"));
    PyObject* const made = parse ? PyObject_CallOneArg(parse.get(), bytes.get()) : nullptr;
    if (made != nullptr || PyErr_ExceptionMatches(PyExc_Exception) == 0) return made;
    if (PyErr_ExceptionMatches(PyExc_MemoryError) != 0) return nullptr;
    PyErr_Clear();
    return failed(in.fail("message", "the bytes are not a complete message of the declared type"));
  }

  // Makes an object of the struct's class from the first fields.
  static PyObject* make_struct(const PlanType& type, std::vector<Reference>& fields) {
    if (!type.python) {
      Reference made(PyDict_New());
      for (std::size_t i = 0; made && i < fields.size(); ++i) {
        if (PyDict_SetItem(made.get(), type.names[i].get(), fields[i].get()) != 0) return nullptr;
      }
      return made.release();
    }
    std::vector<PyObject*> arguments;
    for (const Reference& field : fields) arguments.push_back(field.get());
    Reference keywords = Reference::borrow(type.keywords.get());
    if (fields.size() != type.names.size()) {
      keywords = Reference(PyTuple_GetSlice(type.keywords.get(), 0, static_cast<Py_ssize_t>(fields.size())));
      if (!keywords) return nullptr;
    }
    return PyObject_Vectorcall(type.python.get(), arguments.data(), 0, keywords.get());
  }
  PyObject* structure(Decoder& in, const PlanType& type, int depth) {
    if (!charge(in, type.parts.size() + 1)) return nullptr;
    std::vector<Reference> fields;
    fields.reserve(type.parts.size());
    for (const std::uint32_t part : type.parts) {
      Reference field(value(in, part, depth + 1));
      if (!field) return nullptr;
      fields.push_back(std::move(field));
    }
    return make_struct(type, fields);
  }
  PyObject* evolving(Decoder& in, const PlanType& type, int depth) {
    std::uint32_t length = 0;
    if (!in.read_scalar(length, "struct") || !charge(in, type.parts.size() + 1)) return nullptr;
    if (length > in.available()) return failed(in.fail("struct", "the body has fewer bytes than announced"));
    const std::byte* const outer = in.narrow(length);
    bool allowed = true;
    std::vector<Reference> fields;
    for (std::size_t i = 0; i < type.parts.size(); ++i) {
      if (i >= type.size) {
        if (in.available() == 0) break;
        if (i == type.size) allowed = in.set_payload_allowed(false);
        std::uint32_t signature = 0;
        if (!in.read_scalar(signature, "struct")) return nullptr;
        if (signature != type.signatures[i]) return failed(in.fail("struct", "an appended field has another type"));
      }
      Reference field(value(in, type.parts[i], depth + 1));
      if (!field) return nullptr;
      fields.push_back(std::move(field));
    }
    if (fields.size() > type.size) in.set_payload_allowed(allowed);
    in.widen(outer);
    return make_struct(type, fields);
  }

  const Plan& plan_;
  const Message& message_;
};

// Ends the decoding of a message: `made` is null after a failure.
PyObject* finish(Decoder& in, PyObject* made, Error& error) {
  Reference own(made);
  if (made == nullptr && PyErr_Occurred() != nullptr) {
    error.code = ErrorCode::ok;
    return nullptr;
  }
  if (made == nullptr || !in.finish()) {
    error = in.error();
    error.scope = ErrorScope::call;
    return nullptr;
  }
  return own.release();
}

}  // namespace

PyObject* slice_of(PyObject* keeper, Bytes bytes) {
  const Py_buffer* const whole = PyMemoryView_GET_BUFFER(keeper);
  if (whole->itemsize != 1 || whole->ndim != 1) {
    // Memory of an array of numbers.
    const Reference cast(PyObject_CallMethod(keeper, "cast", "s", "B"));
    return cast ? slice_of(cast.get(), bytes) : nullptr;
  }
  const auto* const begin = static_cast<const std::byte*>(whole->buf);
  const auto from = static_cast<Py_ssize_t>(bytes.data() - begin);
  return PySequence_GetSlice(keeper, from, from + static_cast<Py_ssize_t>(bytes.size()));
}

PyObject* decode_value(const Plan& plan, std::uint32_t type, const Message& message, Error& error) {
  Decoder in(message.body, message.payload, decode_limits);
  return finish(in, Reader(plan, message).sole(in, type), error);
}

PyObject* decode_arguments(const Plan& plan, const Message& message, Error& error) {
  Decoder in(message.body, message.payload, decode_limits);
  return finish(in, Reader(plan, message).arguments(in), error);
}

}  // namespace hawser::python
