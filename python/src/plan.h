#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/codec/decoder.h"
#include "hawser/error.h"
#include "hawser/schema.h"
#include "references.h"

// The types of a method, checked and prepared for conversion between Python objects and the bytes of the codec.
namespace hawser::python {

// The Python object of a type, where the kind alone does not decide.
enum class Form : std::uint8_t {
  automatic,  // Decided by the kind and the element.
  text,       // str
  bytes,      // bytes
  view,       // memoryview of the received message
  list,       // list
  tuple,      // tuple
  frozen,     // frozenset
};

struct PlanType {
  schema::Kind kind = schema::Kind::boolean;
  Form form = Form::automatic;
  std::size_t size = 0;
  std::vector<std::uint32_t> parts;
  std::vector<std::uint32_t> signatures;
  std::vector<Reference> names;  // Interned names of the fields of a struct.
  Reference keywords;            // The same as a tuple.
  Reference python;              // Class of a struct or an enumeration. Null: none.
  std::size_t fixed_bytes = 0;   // Bytes of every value; 0 if they differ, and if it is none.
  std::size_t bytes_min = 0;     // Bytes of the shortest value.
  double seconds = 0;            // The unit of a duration.
};

// Nesting of values.
inline constexpr int depth_max = 64;

// Shared by the calls of a method. Used with the GIL.
class Plan {
 public:
  // `description` may come from a hostile server: it is checked here. `classes` has a Python class or None, and `forms`
  // a Form, for each type; both are null for a description from a server: `make_struct(name, fields)` makes the classes
  // then. Returns null with a Python exception.
  static std::shared_ptr<const Plan> make(schema::Description description, PyObject* classes, PyObject* forms,
                                          PyObject* make_struct);

  const schema::Description& description() const noexcept { return description_; }
  const PlanType& at(std::uint32_t type) const noexcept { return types_[type]; }
  // The name of a type in a few words, such as "int32" or "list of app::Row".
  std::string label(std::uint32_t type, int depth = 0) const;

 private:
  bool prepare(PyObject* classes, PyObject* forms, PyObject* make_struct);
  bool prepare_type(std::uint32_t index, PyObject* python, Form form, PyObject* make_struct);
  std::size_t find_fixed_bytes(std::uint32_t type, std::vector<bool>& open) const;
  std::size_t find_bytes_min(std::uint32_t type, std::vector<bool>& open) const;

  schema::Description description_;
  std::vector<PlanType> types_;
};

// Encoded values: the body, and the pieces of the payload, which `kept` keeps in place.
struct Encoded {
  std::string body;
  std::vector<ConstBuffer> pieces;
  std::size_t payload = 0;
  std::vector<BorrowedMemory> kept;
};

// Encodes `values` as `types`. With the GIL. On false a Python exception names the value and what is expected.
bool encode_arguments(const Plan& plan, PyObject* const* values, std::size_t count, Encoded& out);
bool encode_value(const Plan& plan, std::uint32_t type, PyObject* value, Encoded& out);

// Memory of a received message, and the object that keeps it.
struct Message {
  Bytes body;
  Bytes payload = {};
  PyObject* keeper = nullptr;  // A memoryview that has the payload. Null: views are copied.
  bool views = false;          // Bytes in the payload become memoryviews of it, whatever their form.
};

// The limits of decoding. A number of two bytes takes 40 bytes as an object of a Python list, so that they are wider
// than those of C++.
inline constexpr codec::DecodeLimits decode_limits{.depth_max = 64, .memory_factor_max = 64};
// A memoryview of `bytes`, which lie in the memory of `keeper`, a memoryview.
PyObject* slice_of(PyObject* keeper, Bytes bytes);

// Decodes values with the GIL. Null with the error, or with a Python exception if the error has the code `ok`.
PyObject* decode_value(const Plan& plan, std::uint32_t type, const Message& message, Error& error);
// A tuple of the arguments.
PyObject* decode_arguments(const Plan& plan, const Message& message, Error& error);

}  // namespace hawser::python
