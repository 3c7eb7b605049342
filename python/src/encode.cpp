#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hawser/codec/encoder.h"
#include "plan.h"
#include "tensor_memory.h"

namespace hawser::python {
namespace {

using schema::Kind;

// The limit of Protocol Buffers.
constexpr std::size_t message_bytes_max = (std::size_t{1} << 31) - 1;

template <class T>
void append_number(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

// True if the elements of a buffer with this format of `struct` are numbers of that kind and size.
bool format_fits(const char* format, Py_ssize_t item_bytes, const PlanType& element) noexcept {
  if (static_cast<std::size_t>(item_bytes) != element.size) return false;
  std::string_view text = format == nullptr ? "B" : format;
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text.size() != 1) return false;
  switch (element.kind) {
    case Kind::signed_integer: return std::string_view("bhilqn").find(text[0]) != std::string_view::npos;
    case Kind::unsigned_integer: return std::string_view("BHILQN").find(text[0]) != std::string_view::npos;
    case Kind::floating: return text[0] == 'f' || text[0] == 'd';
    default: return false;
  }
}

// True if the exception is of a class that a text alone makes, so that a place may be put before its text. Others, such
// as those of the application's __index__(), stay as they are.
bool exception_is_text() noexcept {
  const PyObject* const type = PyErr_Occurred();
  return type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_OverflowError ||
         type == PyExc_BufferError;
}

class Writer {
 public:
  Writer(const Plan& plan, Encoded& out) noexcept : plan_(plan), out_(out) {}

  bool value(std::uint32_t index, PyObject* object, int depth) {
    const PlanType& type = plan_.at(index);
    if (depth > depth_max) {
      PyErr_SetString(PyExc_ValueError, "the value is nested more than 64 deep");
      return false;
    }
    switch (type.kind) {
      case Kind::boolean: return boolean(index, object);
      case Kind::signed_integer:
      case Kind::unsigned_integer: return integer(index, object);
      case Kind::character: return character(index, object);
      case Kind::floating: return floating(index, object);
      case Kind::sequence: return sequence(index, object, depth);
      case Kind::array:
      case Kind::tuple: return elements(index, object, depth);
      case Kind::set: return set(index, object, depth);
      case Kind::map: return map(index, object, depth);
      case Kind::optional:
        out_.body += object == Py_None ? '\0' : '\1';
        return object == Py_None || value(type.parts[0], object, depth + 1);
      case Kind::variant: return variant(index, object, depth);
      case Kind::duration: return duration(index, object);
      case Kind::structure:
      case Kind::evolving: return structure(index, object, depth);
      case Kind::message: return message(index, object, false);
      case Kind::custom:
        PyErr_Format(PyExc_TypeError, "the type %s has no form in Python yet", plan_.label(index).c_str());
        return false;
    }
    return false;
  }
  // The only value of a body: a message has no length there.
  bool sole(std::uint32_t index, PyObject* object) {
    return plan_.at(index).kind == Kind::message ? message(index, object, true) : value(index, object, 0);
  }

 private:
  bool refuse(std::uint32_t type, PyObject* object) {
    PyErr_Format(PyExc_TypeError, "expected %s, not %.200s", plan_.label(type).c_str(), Py_TYPE(object)->tp_name);
    return false;
  }
  // After an exception of `expected`, which says that the value is of another type; others stay.
  bool refuse_unless_other(PyObject* expected, std::uint32_t type, PyObject* object) {
    if (PyErr_ExceptionMatches(expected) == 0) return false;
    PyErr_Clear();
    return refuse(type, object);
  }
  // Names the part in which the exception happened.
  static bool within(const char* form, const char* name, std::size_t number) {
    if (!exception_is_text()) return false;
    PyObject* type = nullptr;
    PyObject* error = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    const Reference own_type(type), own_error(error), own_trace(trace);
    if (name != nullptr) {
      PyErr_Format(type, form, name, error);
    } else {
      PyErr_Format(type, form, number, error);
    }
    return false;
  }

  bool boolean(std::uint32_t index, PyObject* object) {
    if (!PyBool_Check(object)) return refuse(index, object);
    out_.body += object == Py_True ? '\1' : '\0';
    return true;
  }

  template <class T>
  bool put_integer(std::uint32_t index, PyObject* object) {
    T number = 0;
    bool fits = true;
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      number = PyLong_AsUnsignedLongLong(object);
      if (number == std::numeric_limits<T>::max() && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        fits = false;
      }
    } else {
      int overflow = 0;
      const long long wide = PyLong_AsLongLongAndOverflow(object, &overflow);
      fits = overflow == 0 && std::in_range<T>(wide);
      number = static_cast<T>(wide);
    }
    if (!fits) {
      PyErr_Format(PyExc_OverflowError, "%R is outside the range of %s", object, plan_.label(index).c_str());
      return false;
    }
    append_number(out_.body, number);
    return true;
  }
  bool integer(std::uint32_t index, PyObject* object) {
    const PlanType& type = plan_.at(index);
    Reference converted;
    if (!PyLong_Check(object)) {
      // numpy's integers, but not a float.
      if (PyIndex_Check(object) == 0) return refuse(index, object);
      converted = Reference(PyNumber_Index(object));
      if (!converted) return false;
      object = converted.get();
    }
    if (type.kind == Kind::signed_integer) {
      switch (type.size) {
        case 1: return put_integer<std::int8_t>(index, object);
        case 2: return put_integer<std::int16_t>(index, object);
        case 4: return put_integer<std::int32_t>(index, object);
        default: return put_integer<std::int64_t>(index, object);
      }
    }
    switch (type.size) {
      case 1: return put_integer<std::uint8_t>(index, object);
      case 2: return put_integer<std::uint16_t>(index, object);
      case 4: return put_integer<std::uint32_t>(index, object);
      default: return put_integer<std::uint64_t>(index, object);
    }
  }
  bool character(std::uint32_t index, PyObject* object) {
    const std::size_t size = plan_.at(index).size;
    if (!PyUnicode_Check(object) || PyUnicode_GetLength(object) != 1) return refuse(index, object);
    const std::uint32_t code = PyUnicode_ReadChar(object, 0);
    if (size < 4 && code >= (std::uint32_t{1} << (8 * size))) return refuse(index, object);
    out_.body.append(reinterpret_cast<const char*>(&code), size);
    return true;
  }
  bool floating(std::uint32_t index, PyObject* object) {
    if (PyUnicode_Check(object) || PyBool_Check(object)) return refuse(index, object);
    const double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred() != nullptr) return refuse_unless_other(PyExc_TypeError, index, object);
    if (plan_.at(index).size == 8) {
      append_number(out_.body, number);
    } else {
      append_number(out_.body, static_cast<float>(number));
    }
    return true;
  }

  // Large memory becomes a piece of the payload, which is sent from where it lies.
  bool blocks(std::size_t count, Bytes bytes, BorrowedMemory* kept) {
    if (count > codec::count_max) {
      PyErr_SetString(PyExc_ValueError, "a sequence has 2^31 elements or more");
      return false;
    }
    if (kept == nullptr || !payload_allowed_ || bytes.size() < codec::out_of_band_bytes_min) {
      append_number(out_.body, static_cast<std::uint32_t>(count));
      out_.body.append(as_text(bytes));
      return true;
    }
    static constexpr std::byte zeros[codec::payload_alignment] = {};
    append_number(out_.body, static_cast<std::uint32_t>(count) | codec::out_of_band_flag);
    const std::size_t padding = -out_.payload % codec::payload_alignment;
    if (padding != 0) out_.pieces.push_back({zeros, padding});
    out_.pieces.push_back({bytes.data(), bytes.size()});
    out_.payload += padding + bytes.size();
    out_.kept.push_back(std::move(*kept));
    return true;
  }
  bool text(std::uint32_t index, PyObject* object) {
    if (!PyUnicode_Check(object)) return refuse(index, object);
    Py_ssize_t size = 0;
    if (const char* const data = PyUnicode_AsUTF8AndSize(object, &size)) {
      return blocks(static_cast<std::size_t>(size), as_bytes({data, static_cast<std::size_t>(size)}), nullptr);
    }
    PyErr_Clear();
    // Text that was not UTF-8 when it was received.
    const Reference encoded(PyUnicode_AsEncodedString(object, "utf-8", "surrogateescape"));
    if (!encoded) return false;
    const std::string_view bytes(PyBytes_AS_STRING(encoded.get()),
                                 static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.get())));
    return blocks(bytes.size(), as_bytes(bytes), nullptr);
  }
  bool sequence(std::uint32_t index, PyObject* object, int depth) {
    const PlanType& type = plan_.at(index);
    if (type.form == Form::text) return text(index, object);
    if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) < 4096 && plan_.at(type.parts[0]).size == 1) {
      const std::string_view bytes(PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object)));
      return blocks(bytes.size(), as_bytes(bytes), nullptr);
    }
    if (PyUnicode_Check(object)) return refuse(index, object);
    if (PyObject_CheckBuffer(object) != 0) return buffer(index, object);
    if (type.form == Form::bytes || type.form == Form::view) {
      return is_tensor(object) ? buffer(index, object) : refuse(index, object);
    }
    return elements(index, object, depth);
  }
  bool buffer(std::uint32_t index, PyObject* object) {
    const PlanType& type = plan_.at(index);
    const PlanType& element = plan_.at(type.parts[0]);
    // Bytes are the memory of any object, such as an array of numbers, in its own order of bytes.
    const bool raw = type.form == Form::bytes || type.form == Form::view;
    BorrowedMemory memory;
    if (!memory.acquire(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return false;
    const Py_buffer* const seen = PyMemoryView_GET_BUFFER(memory.view());
    if (!raw && !format_fits(seen->format, seen->itemsize, element)) {
      PyErr_Format(PyExc_TypeError, "expected %s, not memory of the format '%s'", plan_.label(index).c_str(),
                   seen->format == nullptr ? "B" : seen->format);
      return false;
    }
    const Bytes bytes = memory.bytes();
    return blocks(bytes.size() / element.size, bytes, &memory);
  }
  bool elements(std::uint32_t index, PyObject* object, int depth) {
    const PlanType& type = plan_.at(index);
    if (PyUnicode_Check(object) || PyDict_Check(object)) return refuse(index, object);
    const Reference items(PySequence_Fast(object, ""));
    if (!items) return refuse_unless_other(PyExc_TypeError, index, object);
    const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.get()));
    const bool tuple = type.kind == Kind::tuple;
    const bool counted = type.kind == Kind::sequence;
    if (!counted && count != (tuple ? type.parts.size() : type.size)) {
      PyErr_Format(PyExc_ValueError, "expected %s, not %zu values", plan_.label(index).c_str(), count);
      return false;
    }
    if (counted && !blocks(count, {}, nullptr)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      // Code of the application may run and shorten the list.
      if (i >= static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.get()))) {
        PyErr_SetString(PyExc_ValueError, "the sequence changed while it was encoded");
        return false;
      }
      PyObject* const item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
      const Reference held = Reference::borrow(item);
      if (!value(type.parts[tuple ? i : 0], item, depth + 1)) return within("[%zu]: %S", nullptr, i);
    }
    return true;
  }
  bool set(std::uint32_t index, PyObject* object, int depth) {
    if (!PyAnySet_Check(object)) return refuse(index, object);
    const Reference items(PySequence_List(object));
    if (!items) return false;
    const Py_ssize_t count = PyList_GET_SIZE(items.get());
    if (!blocks(static_cast<std::size_t>(count), {}, nullptr)) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!value(plan_.at(index).parts[0], PyList_GET_ITEM(items.get(), i), depth + 1)) return false;
    }
    return true;
  }
  bool map(std::uint32_t index, PyObject* object, int depth) {
    if (PyMapping_Check(object) == 0 || PyUnicode_Check(object) || PyList_Check(object)) return refuse(index, object);
    const Reference items(PyMapping_Items(object));
    if (!items) return false;
    const Py_ssize_t count = PyList_GET_SIZE(items.get());
    if (!blocks(static_cast<std::size_t>(count), {}, nullptr)) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* const entry = PyList_GET_ITEM(items.get(), i);
      if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2) return refuse(index, object);
      if (!value(plan_.at(index).parts[0], PyTuple_GET_ITEM(entry, 0), depth + 1) ||
          !value(plan_.at(index).parts[1], PyTuple_GET_ITEM(entry, 1), depth + 1)) {
        return within("entry %zu: %S", nullptr, static_cast<std::size_t>(i));
      }
    }
    return true;
  }

  // The first alternative that the value fits is encoded.
  bool variant(std::uint32_t index, PyObject* object, int depth) {
    const PlanType& type = plan_.at(index);
    const std::size_t size = out_.body.size();
    for (std::size_t i = 0; i < type.parts.size(); ++i) {
      const PlanType& alternative = plan_.at(type.parts[i]);
      // A bool is a number in Python, and a class names its alternative.
      if (PyBool_Check(object) && alternative.kind != Kind::boolean) continue;
      if (alternative.python && !PyDict_Check(object)) {
        const int fits = PyObject_IsInstance(object, alternative.python.get());
        if (fits < 0) return false;
        if (fits == 0) continue;
      }
      if (alternative.kind == Kind::floating && !PyFloat_Check(object)) continue;
      const std::size_t pieces = out_.pieces.size();
      const std::size_t payload = out_.payload;
      const std::size_t kept = out_.kept.size();
      out_.body += static_cast<char>(i);
      if (value(type.parts[i], object, depth + 1)) return true;
      if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
      PyErr_Clear();
      out_.body.resize(size);
      out_.pieces.resize(pieces);
      out_.payload = payload;
      out_.kept.resize(kept);
    }
    return refuse(index, object);
  }

  bool duration(std::uint32_t index, PyObject* object) {
    const PlanType& type = plan_.at(index);
    if (PyLong_Check(object)) return value(type.parts[0], object, 0);  // The count itself.
    const Reference seconds(PyObject_CallMethod(object, "total_seconds", nullptr));
    if (!seconds) return refuse_unless_other(PyExc_AttributeError, index, object);
    const double count = PyFloat_AsDouble(seconds.get()) / type.seconds;
    const Reference number(plan_.at(type.parts[0]).kind == Kind::floating ? PyFloat_FromDouble(count)
                                                                          : PyLong_FromDouble(std::round(count)));
    return number && value(type.parts[0], number.get(), 0);
  }

  bool structure(std::uint32_t index, PyObject* object, int depth) {
    const PlanType& type = plan_.at(index);
    const bool from_dict = PyDict_Check(object);
    if (!from_dict && (PyUnicode_Check(object) || PyLong_Check(object) || PyList_Check(object))) {
      return refuse(index, object);
    }
    if (from_dict && static_cast<std::size_t>(PyDict_Size(object)) > type.names.size()) {
      PyErr_Format(PyExc_TypeError, "the dict has keys that %s does not have", plan_.label(index).c_str());
      return false;
    }
    const std::size_t mark = out_.body.size();
    const bool outer = payload_allowed_;
    if (type.kind == Kind::evolving) append_number(out_.body, std::uint32_t{0});
    for (std::size_t i = 0; i < type.parts.size(); ++i) {
      PyObject* const name = type.names[i].get();
      const Reference field(from_dict ? Reference::borrow(PyDict_GetItemWithError(object, name)).release()
                                      : PyObject_GetAttr(object, name));
      if (!field) {
        if (PyErr_Occurred() == nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
          PyErr_Format(PyExc_TypeError, "%s has a field %U, which %s lacks", plan_.label(index).c_str(), name,
                       Py_TYPE(object)->tp_name);
        }
        return false;
      }
      if (type.kind == Kind::evolving && i >= type.size) {
        append_number(out_.body, type.signatures[i]);
        payload_allowed_ = false;
      }
      if (!value(type.parts[i], field.get(), depth + 1)) return within(".%s: %S", PyUnicode_AsUTF8(name), 0);
    }
    payload_allowed_ = outer;
    if (type.kind == Kind::evolving) {
      const auto length = static_cast<std::uint32_t>(out_.body.size() - mark - sizeof(std::uint32_t));
      std::memcpy(out_.body.data() + mark, &length, sizeof(length));
    }
    return true;
  }

  // A message of Protocol Buffers: an object of its class. Where the class is not known: any message, or its bytes.
  bool message(std::uint32_t index, PyObject* object, bool whole) {
    const PlanType& type = plan_.at(index);
    Reference bytes;
    if (type.python) {
      const int fits = PyObject_IsInstance(object, type.python.get());
      if (fits < 0) return false;
      if (fits == 0) return refuse(index, object);
    } else if (PyBytes_Check(object)) {
      bytes = Reference::borrow(object);
    }
    if (!bytes) bytes = Reference(PyObject_CallMethod(object, "SerializeToString", nullptr));
    if (!bytes) return refuse_unless_other(PyExc_AttributeError, index, object);
    if (!PyBytes_Check(bytes.get())) return refuse(index, object);
    const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.get()));
    if (size > message_bytes_max) {
      PyErr_Format(PyExc_ValueError, "%s takes %zu bytes, and a message of Protocol Buffers at most %zu",
                   plan_.label(index).c_str(), size, message_bytes_max);
      return false;
    }
    if (!whole) append_number(out_.body, static_cast<std::uint32_t>(size));
    out_.body.append(PyBytes_AS_STRING(bytes.get()), size);
    return true;
  }

  const Plan& plan_;
  Encoded& out_;
  bool payload_allowed_ = true;
};

}  // namespace

bool encode_arguments(const Plan& plan, PyObject* const* values, std::size_t count, Encoded& out) {
  const std::vector<std::uint32_t>& types = plan.description().arguments;
  if (types.size() != count) {
    PyErr_Format(PyExc_TypeError, "%s takes %zu arguments, not %zu", plan.description().name.c_str(), types.size(),
                 count);
    return false;
  }
  Writer writer(plan, out);
  for (std::size_t i = 0; i < count; ++i) {
    if (count == 1 ? writer.sole(types[i], values[i]) : writer.value(types[i], values[i], 0)) continue;
    if (!exception_is_text()) return false;
    PyObject* type = nullptr;
    PyObject* error = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    const Reference own_type(type), own_error(error), own_trace(trace);
    PyErr_Format(type, "argument %zu of %s: %S", i + 1, plan.description().name.c_str(), error);
    return false;
  }
  return true;
}

bool encode_value(const Plan& plan, std::uint32_t type, PyObject* value, Encoded& out) {
  return Writer(plan, out).sole(type, value);
}

}  // namespace hawser::python
