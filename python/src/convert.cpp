#include "convert.h"

#include <nanobind/stl/string.h>

#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "engine.h"
#include "hawser/bytes.h"

namespace hawser::python {
namespace {

// Received memory with the buffer protocol, for memoryviews.
struct ReceivedMemory {
  Buffer memory;
};

int fill_view(PyObject* self, Py_buffer* view, int flags) {
  const auto* const received = nb::inst_ptr<ReceivedMemory>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(received->memory.data()),
                           static_cast<Py_ssize_t>(received->memory.size()), 1, flags);
}

PyType_Slot received_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&fill_view)}, {0, nullptr}};

}  // namespace

Hooks& hooks() noexcept {
  // Never destroyed: the interpreter ends first.
  static Hooks* const one = new Hooks();
  return *one;
}

nb::object exception_of(const Error& error) {
  const nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(error.text.data(), static_cast<Py_ssize_t>(error.text.size()), "backslashreplace"));
  return hooks().make_error(static_cast<int>(error.code), static_cast<int>(error.scope),
                            static_cast<int>(error.initiator), error.application_code, text);
}

void raise(const Error& error) {
  const nb::object exception = exception_of(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void require_own_process(std::uint64_t generation, const char* owner) {
  if (generation == process_generation()) return;
  raise(Error::of_call(ErrorCode::invalid_argument, std::string("this ") + owner +
                                                        " belongs to the parent process: connect another client in the "
                                                        "child of fork()"));
}

std::optional<Duration> duration_of(nb::handle seconds) {
  if (seconds.is_none()) return std::nullopt;
  const double number = PyFloat_AsDouble(seconds.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (std::isnan(number) || number < 0) throw nb::value_error("a time in seconds is not negative and is a number");
  constexpr double longest = 1e9;
  if (number > longest) return forever;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(number));
}

Metadata metadata_of(nb::handle pairs) {
  Metadata made;
  if (pairs.is_none()) return made;
  const auto text = [](const nb::object& from) {
    if (!PyUnicode_Check(from.ptr())) throw nb::type_error("metadata is a mapping of str to str, or pairs of str");
    const nb::object encoded = nb::steal(PyUnicode_AsEncodedString(from.ptr(), "utf-8", "surrogateescape"));
    if (!encoded.is_valid()) throw nb::python_error();
    return std::string(PyBytes_AS_STRING(encoded.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr())));
  };
  const nb::object items = nb::hasattr(pairs, "items") ? nb::object(pairs.attr("items")()) : nb::borrow(pairs);
  for (const nb::handle pair : items) {
    if (!PyTuple_Check(pair.ptr()) || PyTuple_GET_SIZE(pair.ptr()) != 2) {
      throw nb::type_error("metadata is a mapping of str to str, or pairs of str");
    }
    made.emplace_back(text(pair[0]), text(pair[1]));
  }
  return made;
}

nb::object metadata_list(const Metadata& metadata) {
  nb::list made;
  for (const auto& [key, value] : metadata) {
    const auto text = [](const std::string& from) {
      return nb::steal(PyUnicode_DecodeUTF8(from.data(), static_cast<Py_ssize_t>(from.size()), "surrogateescape"));
    };
    made.append(nb::make_tuple(text(key), text(value)));
  }
  return nb::object(made);
}

std::vector<TransportSpec> transports_of(const std::vector<std::string>& names) {
  std::vector<TransportSpec> made;
  for (const std::string& name : names) {
    if (name != "shm" && name != "rdma" && name != "ucx") {
      throw nb::value_error("a transport is \"shm\", \"rdma\" or \"ucx\"");
    }
    made.push_back(name == "shm" ? shm() : name == "rdma" ? rdma() : ucx());
  }
  return made;
}

nb::object memory_object(Buffer memory) {
  const nb::object received = nb::cast(ReceivedMemory{std::move(memory)});
  return nb::steal(PyMemoryView_FromObject(received.ptr()));
}

void bind_convert(nb::module_& module) {
  nb::class_<ReceivedMemory>(module, "ReceivedMemory", nb::type_slots(received_slots));
  module.def("set_hooks", [](nb::object make_error, nb::object make_reply, nb::object make_struct) {
    hooks() = {std::move(make_error), std::move(make_reply), std::move(make_struct)};
  });
}

}  // namespace hawser::python
