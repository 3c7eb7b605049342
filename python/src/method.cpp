#include "method.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert.h"

namespace hawser::python {
namespace {

// A type is a dict with the names of the fields of schema::Type, and with `python` and `form`.
schema::Type type_of(nb::handle given) {
  schema::Type type;
  type.kind = static_cast<schema::Kind>(nb::cast<int>(given["kind"]));
  type.name = nb::cast<std::string>(given["name"]);
  type.size = nb::cast<std::uint64_t>(given["size"]);
  type.parts = nb::cast<std::vector<std::uint32_t>>(given["parts"]);
  type.names = nb::cast<std::vector<std::string>>(given["names"]);
  type.values = nb::cast<std::vector<std::int64_t>>(given["values"]);
  type.signatures = nb::cast<std::vector<std::uint32_t>>(given["signatures"]);
  type.numerator = nb::cast<std::uint64_t>(given["numerator"]);
  type.denominator = nb::cast<std::uint64_t>(given["denominator"]);
  return type;
}

Method make(std::string name, std::uint32_t id, std::uint32_t signature, std::vector<std::uint32_t> arguments,
            std::optional<std::uint32_t> result, std::optional<std::uint32_t> incoming,
            std::optional<std::uint32_t> outgoing, const nb::list& types, const nb::list& files) {
  schema::Description description;
  description.name = std::move(name);
  description.id = id;
  description.signature = signature;
  description.arguments = std::move(arguments);
  description.result = result;
  description.incoming = incoming;
  description.outgoing = outgoing;
  for (const nb::handle file : files) {
    const auto bytes = nb::cast<nb::bytes>(file);
    description.files.emplace_back(bytes.c_str(), bytes.size());
  }
  nb::list classes;
  nb::list forms;
  for (const nb::handle one : types) {
    description.types.push_back(type_of(one));
    classes.append(one["python"]);
    forms.append(one["form"]);
  }
  std::shared_ptr<const Plan> plan = Plan::make(std::move(description), classes.ptr(), forms.ptr(), nullptr);
  if (plan == nullptr) throw nb::python_error();
  return {std::move(plan)};
}

// For tests: the bytes of the arguments, and the arguments in bytes. The payload is empty.
nb::bytes encode(const Method& method, const nb::args& values) {
  Encoded out;
  std::vector<PyObject*> objects;
  for (const nb::handle value : values) objects.push_back(value.ptr());
  if (!encode_arguments(*method.plan, objects.data(), objects.size(), out)) throw nb::python_error();
  return nb::bytes(out.body.data(), out.body.size());
}
nb::object decode(const Method& method, const nb::bytes& body) {
  Error error;
  Message message;
  message.body = as_bytes({body.c_str(), body.size()});
  PyObject* const made = decode_arguments(*method.plan, message, error);
  if (made == nullptr && error.code == ErrorCode::ok) throw nb::python_error();
  if (made == nullptr) raise(error);
  return nb::steal(made);
}

}  // namespace

void bind_method(nb::module_& module) {
  nb::class_<Method>(module, "Method")
      .def_prop_ro("name", [](const Method& method) { return method.description().name; })
      .def_prop_ro("id", [](const Method& method) { return method.description().id; })
      .def_prop_ro("signature", [](const Method& method) { return method.description().signature; })
      .def_prop_ro("incoming", [](const Method& method) { return method.description().incoming.has_value(); })
      .def_prop_ro("outgoing", [](const Method& method) { return method.description().outgoing.has_value(); })
      .def("encode", &encode)
      .def("decode", &decode);
  module.def("make_method", &make, nb::arg("name"), nb::arg("id"), nb::arg("signature"), nb::arg("arguments"),
             nb::arg("result").none(), nb::arg("incoming").none(), nb::arg("outgoing").none(), nb::arg("types"),
             nb::arg("files"));
}

}  // namespace hawser::python
