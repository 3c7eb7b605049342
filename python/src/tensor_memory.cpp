#include "tensor_memory.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "references.h"

namespace hawser::python {
namespace {

// The structures of DLPack. Their layout is a part of the protocol, and so are the names of the capsules.
struct Device {
  std::int32_t type;
  std::int32_t id;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  std::uint8_t code;  // The kind of number that the elements are.
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // In elements. Null: those of C's order.
  std::uint64_t byte_offset;
};
struct Managed {
  static constexpr const char* capsule = "dltensor";
  static constexpr const char* used = "used_dltensor";
  Tensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};
struct Versioned {
  static constexpr const char* capsule = "dltensor_versioned";
  static constexpr const char* used = "used_dltensor_versioned";
  static constexpr std::uint32_t known_major = 1;
  static constexpr std::uint64_t read_only = 1;
  static constexpr std::uint64_t is_copied = 2;
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(Versioned* self);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr long processor_device = 1;
static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(Versioned) == 80);

// A tensor that was taken from its capsule.
class TensorMemory {
 public:
  template <class Kind>
  TensorMemory(Kind* managed, std::size_t bytes, bool read_only) noexcept
      : data_(static_cast<std::byte*>(managed->tensor.data) + managed->tensor.byte_offset),
        bytes_(bytes),
        read_only_(read_only),
        managed_(managed),
        end_([](void* one) {
          auto* const self = static_cast<Kind*>(one);
          if (self->deleter != nullptr) self->deleter(self);
        }) {}
  TensorMemory(TensorMemory&& other) noexcept
      : data_(other.data_),
        bytes_(other.bytes_),
        read_only_(other.read_only_),
        managed_(std::exchange(other.managed_, nullptr)),
        end_(other.end_) {}
  TensorMemory& operator=(TensorMemory&&) = delete;
  ~TensorMemory() {
    if (managed_ == nullptr) return;
    const nb::error_scope kept;  // The deleter may run code of Python, which ends the process if an exception is set.
    end_(managed_);
  }

  int fill(PyObject* self, Py_buffer* view, int flags) const noexcept {
    return PyBuffer_FillInfo(view, self, data_, static_cast<Py_ssize_t>(bytes_), read_only_ ? 1 : 0, flags);
  }

 private:
  std::byte* const data_;
  const std::size_t bytes_;
  const bool read_only_;
  void* managed_;  // Null: it was moved.
  void (*const end_)(void* managed);
};

int fill_tensor_view(PyObject* self, Py_buffer* view, int flags) {
  return nb::inst_ptr<TensorMemory>(nb::handle(self))->fill(self, view, flags);
}

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&fill_tensor_view)}, {0, nullptr}};

std::optional<std::size_t> refuse_tensor(const char* why) {
  PyErr_Format(PyExc_BufferError, "hawser: %s", why);
  return std::nullopt;
}

void refuse_device(long type) {
  PyErr_Format(PyExc_BufferError,
               "hawser: the memory of the tensor is that of a device (DLPack type %ld), not of the processor (type 1): "
               "copy it to the processor's memory",
               type);
}

// The bytes of a tensor whose memory the processor can access as one block. Empty with an exception of Python.
std::optional<std::size_t> tensor_bytes(const Tensor& tensor) {
  if (tensor.device.type != processor_device) {
    refuse_device(tensor.device.type);
    return std::nullopt;
  }
  const std::uint32_t bits = std::uint32_t{tensor.bits} * tensor.lanes;
  if (bits == 0 || bits % 8 != 0) return refuse_tensor("the elements of the tensor are not whole bytes");
  if (tensor.dimensions < 0) return refuse_tensor("the tensor has a negative number of dimensions");
  if (tensor.dimensions > 0 && tensor.shape == nullptr) return refuse_tensor("the tensor has no shape");
  std::int64_t bytes = bits / 8;
  std::int64_t elements = 1;  // Within the dimensions so far; the last one is the first here.
  bool in_order = true;
  for (std::int32_t i = tensor.dimensions - 1; i >= 0; --i) {
    const std::int64_t size = tensor.shape[i];
    if (size == 0) return std::size_t{0};
    if (tensor.strides != nullptr && size != 1 && tensor.strides[i] != elements) in_order = false;
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements) || __builtin_mul_overflow(bytes, size, &bytes)) {
      return refuse_tensor("the shape of the tensor is not that of memory");
    }
  }
  if (!in_order) return refuse_tensor("the elements of the tensor do not lie in C's order: make it contiguous");
  if (tensor.data == nullptr) return refuse_tensor("the tensor has no memory");
  return static_cast<std::size_t>(bytes);
}

template <class Kind>
PyObject* take_tensor(PyObject* capsule, Kind* managed, bool read_only) {
  const std::optional<std::size_t> bytes = tensor_bytes(managed->tensor);
  if (!bytes) return nullptr;  // The capsule still owns the tensor.
  if (PyCapsule_SetName(capsule, Kind::used) != 0) return nullptr;
  try {
    return nb::cast(TensorMemory(managed, *bytes, read_only)).release().ptr();
  } catch (const std::exception&) {
    if (PyErr_Occurred() == nullptr) PyErr_NoMemory();
    return nullptr;
  }
}

// The capsule of the tensor. A producer of an earlier version of the protocol does not know `max_version`.
PyObject* capsule_of(PyObject* tensor) {
  const Reference method(PyObject_GetAttrString(tensor, "__dlpack__"));
  const Reference none(PyTuple_New(0));
  const Reference version(Py_BuildValue("{s(ii)}", "max_version", 1, 0));
  if (!method || !none || !version) return nullptr;
  PyObject* const capsule = PyObject_Call(method.get(), none.get(), version.get());
  if (capsule != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return capsule;
  PyErr_Clear();
  return PyObject_Call(method.get(), none.get(), nullptr);
}

bool is_of_processor(PyObject* tensor) {
  const Reference device(PyObject_CallMethod(tensor, "__dlpack_device__", nullptr));
  if (!device) return false;
  const Reference type(PySequence_GetItem(device.get(), 0));
  if (!type) return false;
  const long number = PyLong_AsLong(type.get());
  if (number == -1 && PyErr_Occurred() != nullptr) return false;
  if (number != processor_device) refuse_device(number);
  return number == processor_device;
}

}  // namespace

bool is_tensor(PyObject* object) noexcept {
  return PyObject_HasAttrString(object, "__dlpack__") != 0 && PyObject_HasAttrString(object, "__dlpack_device__") != 0;
}

PyObject* tensor_memory(PyObject* tensor) noexcept {
  if (!is_of_processor(tensor)) return nullptr;
  const Reference capsule(capsule_of(tensor));
  if (!capsule) return nullptr;
  if (PyCapsule_IsValid(capsule.get(), Managed::capsule) != 0) {
    auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.get(), Managed::capsule));
    return take_tensor(capsule.get(), managed, false);
  }
  if (PyCapsule_IsValid(capsule.get(), Versioned::capsule) == 0) {
    PyErr_SetString(PyExc_BufferError,
                    "hawser: the capsule of __dlpack__() has no tensor, or one that was taken before");
    return nullptr;
  }
  auto* const managed = static_cast<Versioned*>(PyCapsule_GetPointer(capsule.get(), Versioned::capsule));
  if (managed->major != Versioned::known_major) {
    PyErr_Format(PyExc_BufferError, "hawser: the tensor is of DLPack %u, not of version 1", managed->major);
    return nullptr;
  }
  if ((managed->flags & Versioned::is_copied) != 0) {
    PyErr_SetString(PyExc_BufferError, "hawser: __dlpack__() made a copy of the tensor: give memory that needs none");
    return nullptr;
  }
  return take_tensor(capsule.get(), managed, (managed->flags & Versioned::read_only) != 0);
}

void bind_tensor_memory(nb::module_& module) {
  nb::class_<TensorMemory>(module, "TensorMemory", nb::type_slots(tensor_slots));
}

}  // namespace hawser::python
