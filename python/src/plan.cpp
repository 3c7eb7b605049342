#include "plan.h"

#include <utility>

namespace hawser::python {
namespace {

using schema::Kind;
using schema::Type;

// Types of a description. A method of a program has dozens.
constexpr std::size_t types_max = 10'000;

bool has_size(Kind kind) noexcept { return kind <= Kind::floating; }

// Checks that a type has the parts of its kind, and that their indices are valid.
bool well_formed(const Type& type, std::size_t types) {
  for (const std::uint32_t part : type.parts) {
    if (part >= types) return false;
  }
  const std::size_t parts = type.parts.size();
  switch (type.kind) {
    case Kind::boolean: return parts == 0;
    case Kind::signed_integer:
    case Kind::unsigned_integer:
      return parts == 0 && (type.size == 1 || type.size == 2 || type.size == 4 || type.size == 8);
    case Kind::character: return parts == 0 && (type.size == 1 || type.size == 2 || type.size == 4);
    case Kind::floating: return parts == 0 && (type.size == 4 || type.size == 8);
    case Kind::sequence:
    case Kind::set:
    case Kind::optional: return parts == 1;
    case Kind::array: return parts == 1 && type.size < (std::uint64_t{1} << 31);
    case Kind::map: return parts == 2;
    case Kind::variant: return parts >= 1 && parts <= 255;
    case Kind::duration: return parts == 1 && type.numerator != 0 && type.denominator != 0;
    case Kind::tuple: return true;
    case Kind::structure: return type.names.size() == parts;
    case Kind::evolving:
      return type.names.size() == parts && type.size <= parts &&
             (type.size == parts || type.signatures.size() == parts);
    case Kind::message:
    case Kind::custom: return true;
  }
  return false;
}

bool well_formed(const schema::Description& description) {
  const std::size_t types = description.types.size();
  if (types > types_max) return false;
  for (const Type& type : description.types) {
    if (!well_formed(type, types)) return false;
  }
  for (const std::uint32_t argument : description.arguments) {
    if (argument >= types) return false;
  }
  for (const auto& one : {description.result, description.incoming, description.outgoing}) {
    if (one && *one >= types) return false;
  }
  // A duration counts in numbers.
  for (const Type& type : description.types) {
    if (type.kind == Kind::duration && !has_size(description.types[type.parts[0]].kind)) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const Plan> Plan::make(schema::Description description, PyObject* classes, PyObject* forms,
                                       PyObject* make_struct) {
  if (!well_formed(description)) {
    PyErr_Format(PyExc_ValueError, "the description of the method %.200s contradicts itself", description.name.c_str());
    return nullptr;
  }
  auto plan = std::make_shared<Plan>();
  plan->description_ = std::move(description);
  if (!plan->prepare(classes, forms, make_struct)) return nullptr;
  return plan;
}

bool Plan::prepare(PyObject* classes, PyObject* forms, PyObject* make_struct) {
  const std::size_t count = description_.types.size();
  types_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    PyObject* python = nullptr;
    Form form = Form::automatic;
    if (classes != nullptr) {
      python = PyList_GetItem(classes, i);
      PyObject* const number = PyList_GetItem(forms, i);
      if (python == nullptr || number == nullptr) return false;
      form = static_cast<Form>(PyLong_AsLong(number));
      if (python == Py_None) python = nullptr;
    }
    if (!prepare_type(i, python, form, make_struct)) return false;
  }
  std::vector<bool> open(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    types_[i].fixed_bytes = find_fixed_bytes(i, open);
    types_[i].bytes_min = find_bytes_min(i, open);
  }
  return true;
}

bool Plan::prepare_type(std::uint32_t index, PyObject* python, Form form, PyObject* make_struct) {
  const Type& type = description_.types[index];
  PlanType& made = types_[index];
  made.kind = type.kind;
  made.form = form;
  made.size = static_cast<std::size_t>(type.size);
  made.parts = type.parts;
  made.signatures = type.signatures;
  made.python = Reference::borrow(python);
  if (type.kind == Kind::duration) {
    made.seconds = static_cast<double>(type.numerator) / static_cast<double>(type.denominator);
  }
  if (type.kind == Kind::sequence && form == Form::automatic) {
    const Type& element = description_.types[type.parts[0]];
    if (element.size == 1 && element.kind == Kind::character) made.form = Form::text;
    // std::byte is an unsigned number of one byte, and so is an enumeration, which has names.
    if (element.size == 1 && element.kind == Kind::unsigned_integer && element.names.empty()) made.form = Form::bytes;
  }
  if (type.kind != Kind::structure && type.kind != Kind::evolving) return true;
  Reference keywords(PyTuple_New(static_cast<Py_ssize_t>(type.names.size())));
  if (!keywords) return false;
  for (std::size_t i = 0; i < type.names.size(); ++i) {
    PyObject* name = PyUnicode_FromStringAndSize(type.names[i].data(), static_cast<Py_ssize_t>(type.names[i].size()));
    if (name == nullptr) return false;
    PyUnicode_InternInPlace(&name);
    made.names.push_back(Reference::borrow(name));
    PyTuple_SET_ITEM(keywords.get(), static_cast<Py_ssize_t>(i), name);
  }
  made.keywords = std::move(keywords);
  if (python == nullptr && make_struct != nullptr) {
    const Reference name(
        PyUnicode_DecodeUTF8(type.name.data(), static_cast<Py_ssize_t>(type.name.size()), "backslashreplace"));
    if (!name) return false;
    made.python = Reference(PyObject_CallFunctionObjArgs(make_struct, name.get(), made.keywords.get(), nullptr));
    if (!made.python) return false;
  }
  return true;
}

std::size_t Plan::find_fixed_bytes(std::uint32_t type, std::vector<bool>& open) const {
  const PlanType& known = types_[type];
  if (known.kind == Kind::boolean) return 1;
  if (has_size(known.kind)) return known.size;
  if (known.kind == Kind::duration) return find_fixed_bytes(known.parts[0], open);
  if (open[type]) return 0;  // A struct that contains itself has no size.
  open[type] = true;
  std::size_t bytes = 0;
  if (known.kind == Kind::array) {
    if (__builtin_mul_overflow(find_fixed_bytes(known.parts[0], open), known.size, &bytes)) bytes = 0;
  } else if (known.kind == Kind::structure || known.kind == Kind::tuple) {
    for (const std::uint32_t part : known.parts) {
      const std::size_t one = find_fixed_bytes(part, open);
      if (one == 0 || __builtin_add_overflow(bytes, one, &bytes)) {
        bytes = 0;
        break;
      }
    }
  }
  open[type] = false;
  return bytes;
}

std::size_t Plan::find_bytes_min(std::uint32_t type, std::vector<bool>& open) const {
  const PlanType& known = types_[type];
  switch (known.kind) {
    case Kind::sequence:
    case Kind::set:
    case Kind::map:
    case Kind::evolving:
    case Kind::message: return sizeof(std::uint32_t);
    case Kind::optional:
    case Kind::variant:
    case Kind::boolean: return 1;
    case Kind::structure:
    case Kind::tuple: {
      if (open[type]) return 0;
      open[type] = true;
      std::size_t bytes = 0;
      for (const std::uint32_t part : known.parts) bytes += find_bytes_min(part, open);
      open[type] = false;
      return bytes;
    }
    case Kind::array: {
      // The decoder checks each element.
      return known.size == 0 ? 0 : types_[type].fixed_bytes;
    }
    case Kind::duration: return find_fixed_bytes(known.parts[0], open);
    case Kind::custom: return 0;
    default: return known.size;
  }
}

std::string Plan::label(std::uint32_t type, int depth) const {
  const PlanType& known = types_[type];
  const Type& described = description_.types[type];
  if (!described.name.empty()) return described.name.substr(0, 200);
  if (depth > 3) return "...";
  const auto part = [&](std::size_t i) { return label(known.parts[i], depth + 1); };
  switch (known.kind) {
    case Kind::boolean: return "bool";
    case Kind::signed_integer: return "int" + std::to_string(8 * known.size);
    case Kind::unsigned_integer: return "uint" + std::to_string(8 * known.size);
    case Kind::character: return "char" + std::to_string(8 * known.size);
    case Kind::floating: return "float" + std::to_string(8 * known.size);
    case Kind::sequence:
      if (known.form == Form::text) return "str";
      if (known.form == Form::bytes || known.form == Form::view) return "bytes";
      return "list of " + part(0);
    case Kind::array: return "array of " + std::to_string(known.size) + " " + part(0);
    case Kind::set: return "set of " + part(0);
    case Kind::map: return "dict of " + part(0) + " to " + part(1);
    case Kind::optional: return part(0) + " or None";
    case Kind::duration: return "timedelta";
    case Kind::variant:
    case Kind::tuple: {
      std::string text = known.kind == Kind::tuple ? "tuple of (" : "one of (";
      for (std::size_t i = 0; i < known.parts.size() && i < 8; ++i) text += (i == 0 ? "" : ", ") + part(i);
      return text + ")";
    }
    default: return "struct";
  }
}

}  // namespace hawser::python
