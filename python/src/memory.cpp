#include "memory.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client.h"
#include "convert.h"
#include "engine.h"
#include "hawser/memory.h"
#include "hawser/server.h"
#include "server.h"

namespace hawser::python {
namespace {

// A read or a write of memory that a server exposes.
class MemoryAccess final : public Work {
 public:
  using Work::Work;

  RemoteRegion region;
  std::uint64_t offset = 0;
  BorrowedMemory memory;               // Empty with a batch.
  std::shared_ptr<MemoryBatch> batch;  // Null: one block.
  bool writes = false;
  bool registered = false;  // A RegisteredMemory of the client has the memory.
  RemoteOptions options;
  // The access was not submitted.
  void abandon() noexcept { release(); }

 private:
  void begin() override { run(std::static_pointer_cast<MemoryAccess>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<MemoryAccess> access);
  static Task<Result<void>> execute(MemoryAccess& access);
  nb::object value() override { return nb::none(); }
  void release() noexcept override {
    memory = {};
    if (batch != nullptr) batch->end();
    batch.reset();
  }
};

detail::Serving MemoryAccess::run(std::shared_ptr<MemoryAccess> access) {
  Begun begun{*access};
  co_await begun;
  Result<void> done = co_await execute(*access);
  if (!done) access->error_ = std::move(done.error());
  access->finish();
}

Task<Result<void>> MemoryAccess::execute(MemoryAccess& access) {
  Result<void> connected = co_await access.client_->connect();  // At once, if there is a connection.
  if (!connected) co_return connected;
  Client& client = access.client_->client();
  RemoteMemory remote(client);
  const MutableBytes local = access.batch != nullptr ? access.batch->memory() : access.memory.mutable_bytes();
  std::optional<RegisteredBuffer> own;
  if (remote.capabilities().one_sided) {
    Result<RegisteredBuffer> wrapped = RegisteredBuffer::wrap(client, local);
    // The memory of a RegisteredMemory is registered already, which is this error. So is the memory of another access,
    // which may end and deregister it before this one has ended.
    if (wrapped) {
      own = std::move(*wrapped);
    } else if (!access.registered || wrapped.error().code != ErrorCode::invalid_argument) {
      co_return std::unexpected(std::move(wrapped.error()));
    }
  }
  if (access.batch != nullptr) {
    const TransferBatch& blocks = access.batch->batch();
    if (access.writes) co_return co_await remote.write(access.region, blocks, access.options, access.offset);
    co_return co_await remote.read(access.region, blocks, access.options, access.offset);
  }
  if (access.writes) co_return co_await remote.write(access.region, access.offset, local, access.options);
  co_return co_await remote.read(access.region, access.offset, local, access.options);
}

std::uint64_t number_of(nb::handle object, const char* name) {
  const unsigned long long number = PyLong_AsUnsignedLongLong(nb::object(object.attr(name)).ptr());
  if (number == ~0ULL && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

// From an object of hawser.Region.
RemoteRegion region_of(nb::handle given) {
  RemoteRegion region;
  region.bytes = number_of(given, "bytes");
  region.readable = number_of(given, "readable") != 0;
  region.writable = number_of(given, "writable") != 0;
  region.owner = number_of(given, "owner");
  region.slot = static_cast<std::uint32_t>(number_of(given, "slot"));
  region.generation = static_cast<std::uint32_t>(number_of(given, "generation"));
  region.capability = number_of(given, "capability");
  const nb::object places = given.attr("places");
  if (nb::len(places) != region.places.size()) throw nb::value_error("a Region has 16 places");
  for (std::size_t i = 0; i < region.places.size(); ++i) {
    const nb::object place = places[i];
    region.places[i] = {.domain = number_of(place, "domain"),
                        .address = number_of(place, "address"),
                        .key = static_cast<std::uint32_t>(number_of(place, "key"))};
  }
  return region;
}

// The fields of a hawser.Region, in their order.
nb::tuple fields_of(const RemoteRegion& region) {
  nb::list places;
  for (const RemoteRegion::Place& one : region.places) {
    places.append(nb::make_tuple(one.domain, one.address, one.key));
  }
  return nb::make_tuple(region.bytes, region.readable, region.writable, region.owner, region.slot, region.generation,
                        region.capability, places);
}

// Registers memory with the devices of a client. The future gets a RegisteredMemory.
class Registering final : public Work {
 public:
  using Work::Work;

  BorrowedMemory memory;

 private:
  void begin() override { run(std::static_pointer_cast<Registering>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<Registering> work) {
    Begun begun{*work};
    co_await begun;
    Result<void> connected = co_await work->client_->connect();  // The devices are known then.
    if (!connected) {
      work->fail(std::move(connected.error()));
      co_return;
    }
    Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(work->client_->client(), work->memory.mutable_bytes());
    if (!buffer) {
      work->fail(std::move(buffer.error()));
      co_return;
    }
    work->buffer_ = std::move(*buffer);
    work->finish();
  }
  nb::object value() override {
    return nb::cast(std::make_shared<RegisteredMemory>(client_, std::move(memory), std::move(buffer_)));
  }
  void release() noexcept override {
    buffer_ = RegisteredBuffer();
    memory = {};
  }

  RegisteredBuffer buffer_;
};

std::shared_ptr<Work> start_registering(const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub,
                                        const nb::object& future, nb::handle memory) {
  client->require_address("the memory");
  const auto work = std::make_shared<Registering>(client, hub, future);
  if (!work->memory.acquire(memory.ptr(), PyBUF_C_CONTIGUOUS)) throw nb::python_error();
  client->submit(work);
  return work;
}

// Numbers of a sequence, or of memory that has them with 8 bytes each, such as a numpy array. A negative one of the
// latter becomes a large one, which no memory has.
std::vector<std::uint64_t> numbers_of(nb::handle given) {
  Py_buffer view;
  if (PyObject_CheckBuffer(given.ptr()) == 0) {
    // A sequence.
  } else if (PyObject_GetBuffer(given.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // Such as an array with gaps, which is a sequence.
  } else {
    const bool fits = view.itemsize == 8 && view.format != nullptr && std::strchr("qQlL", view.format[0]) != nullptr;
    std::vector<std::uint64_t> made(fits ? static_cast<std::size_t>(view.len / 8) : 0);
    if (!made.empty()) std::memcpy(made.data(), view.buf, made.size() * sizeof(made[0]));
    PyBuffer_Release(&view);
    if (fits) return made;
  }
  const nb::object items = nb::steal(PySequence_Fast(given.ptr(), "hawser: offsets and lengths are sequences of int"));
  if (!items.is_valid()) throw nb::python_error();
  std::vector<std::uint64_t> made;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    const nb::object number = nb::steal(PyNumber_Index(PySequence_Fast_GET_ITEM(items.ptr(), i)));
    if (!number.is_valid()) throw nb::python_error();
    made.push_back(PyLong_AsUnsignedLongLong(number.ptr()));
    if (made.back() == ~0ULL && PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  return made;
}

std::shared_ptr<Work> start_access(const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub,
                                   const nb::object& future, nb::handle region, nb::handle memory, std::uint64_t offset,
                                   nb::handle timeout, bool writes) {
  client->require_address("the memory");
  const auto access = std::make_shared<MemoryAccess>(client, hub, future);
  access->region = region_of(region);
  access->offset = offset;
  access->writes = writes;
  access->options.timeout = duration_of(timeout).value_or(client->call_timeout());
  if (nb::isinstance<MemoryBatch>(memory)) {
    auto batch = nb::cast<std::shared_ptr<MemoryBatch>>(memory);
    if (!writes && !batch->writable()) throw nb::buffer_error("hawser: the memory of the batch is not writable");
    batch->begin();
    access->registered = client->has_registered(batch->memory());
    access->batch = std::move(batch);
    try {
      client->submit(access);
    } catch (...) {
      access->abandon();
      throw;
    }
    return access;
  }
  if (!access->memory.acquire(memory.ptr(), PyBUF_C_CONTIGUOUS | (writes ? 0 : PyBUF_WRITABLE))) {
    throw nb::python_error();
  }
  access->registered = client->has_registered(access->memory.mutable_bytes());
  client->submit(access);
  return access;
}

}  // namespace

ExposedMemory::ExposedMemory(const Server& server, nb::handle memory, RegionAccess access, Duration lease)
    : generation_(process_generation()), parts_(std::make_unique<Parts>()) {
  const int flags = PyBUF_C_CONTIGUOUS | (access == RegionAccess::read ? 0 : PyBUF_WRITABLE);
  if (!parts_->memory.acquire(memory.ptr(), flags)) throw nb::python_error();
  Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(server, parts_->memory.mutable_bytes());
  if (!buffer) raise(buffer.error());
  parts_->buffer = std::move(*buffer);
  Result<ExposedRegion> region = parts_->buffer.expose(0, parts_->buffer.size(), access, {.lease = lease});
  if (!region) raise(region.error());
  parts_->region = std::move(*region);
  handle_ = parts_->region.handle();
}

void ExposedMemory::revoke() noexcept {
  if (generation_ == process_generation()) {
    parts_.reset();
  } else {
    static_cast<void>(parts_.release());  // They belong to the parent process.
  }
}

// ---- MemoryBatch ----

MemoryBatch::MemoryBatch(nb::handle memory, nb::handle local, nb::handle remote, nb::handle bytes) {
  writable_ = memory_.acquire(memory.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  if (!writable_) {
    PyErr_Clear();
    if (!memory_.acquire(memory.ptr(), PyBUF_C_CONTIGUOUS)) throw nb::python_error();
  }
  const std::vector<std::uint64_t> from = numbers_of(local);
  const std::vector<std::uint64_t> to = numbers_of(remote);
  std::vector<std::uint64_t> sizes;
  if (PyIndex_Check(bytes.ptr()) != 0 && PySequence_Check(bytes.ptr()) == 0) {
    sizes.assign(from.size(), numbers_of(nb::make_tuple(bytes))[0]);
  } else {
    sizes = numbers_of(bytes);
  }
  if (to.size() != from.size() || sizes.size() != from.size()) {
    PyErr_Format(PyExc_ValueError, "hawser: a batch has %zu places in local memory, %zu in the region and %zu lengths",
                 from.size(), to.size(), sizes.size());
    throw nb::python_error();
  }
  const MutableBytes whole = memory_.mutable_bytes();
  batch_.reserve(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] > whole.size() || sizes[i] > whole.size() - from[i]) {
      PyErr_Format(PyExc_ValueError, "hawser: block %zu has the bytes %llu to %llu of memory of %zu bytes", i,
                   static_cast<unsigned long long>(from[i]), static_cast<unsigned long long>(from[i] + sizes[i]),
                   whole.size());
      throw nb::python_error();
    }
    batch_.add(whole.subspan(static_cast<std::size_t>(from[i]), static_cast<std::size_t>(sizes[i])), to[i]);
  }
}

void MemoryBatch::move(nb::handle remote) {
  const std::vector<std::uint64_t> to = numbers_of(remote);
  const char* wrong = nullptr;
  if (used_ != 0) {
    wrong = "hawser: the batch is in use: await the access before move()";
  } else if (!batch_.set_offsets(to)) {
    wrong = "hawser: move() takes one place for each block of the batch";
  }
  if (wrong != nullptr) throw nb::value_error(wrong);
}

// ---- RegisteredMemory ----

RegisteredMemory::RegisteredMemory(std::shared_ptr<ClientCore> client, BorrowedMemory memory, RegisteredBuffer buffer)
    : generation_(process_generation()),
      client_(std::move(client)),
      memory_(std::move(memory)),
      buffer_(std::make_unique<RegisteredBuffer>(std::move(buffer))) {
  client_->add_registered(memory_.bytes());
}

void RegisteredMemory::close() noexcept {
  if (generation_ == process_generation()) {
    buffer_.reset();
  } else {
    static_cast<void>(buffer_.release());  // It belongs to the parent process.
  }
  if (client_ != nullptr) client_->remove_registered(memory_.bytes());
  memory_ = {};
  client_.reset();
}

void bind_memory(nb::module_& module) {
  nb::class_<ExposedMemory>(module, "ExposedMemory")
      .def("revoke", &ExposedMemory::revoke)
      .def_prop_ro("fields", [](const ExposedMemory& exposed) { return fields_of(exposed.handle()); });
  nb::class_<MemoryBatch>(module, "MemoryBatch")
      .def(nb::new_([](nb::handle memory, nb::handle local, nb::handle remote, nb::handle bytes) {
             return std::make_shared<MemoryBatch>(memory, local, remote, bytes);
           }),
           nb::arg("memory"), nb::arg("local"), nb::arg("remote"), nb::arg("bytes"))
      .def("move", &MemoryBatch::move, nb::arg("remote"))
      .def_prop_ro("blocks", [](const MemoryBatch& batch) { return batch.batch().blocks(); })
      .def_prop_ro("bytes", [](const MemoryBatch& batch) { return batch.batch().bytes(); });
  nb::class_<RegisteredMemory>(module, "RegisteredMemory")
      .def("close", &RegisteredMemory::close)
      .def_prop_ro("registered", &RegisteredMemory::registered);
  module.def("register_memory", &start_registering, nb::arg("client"), nb::arg("hub"), nb::arg("future"),
             nb::arg("memory"));
  module.def("access_memory", &start_access, nb::arg("client"), nb::arg("hub"), nb::arg("future"), nb::arg("region"),
             nb::arg("memory"), nb::arg("offset"), nb::arg("timeout").none(), nb::arg("writes"));
  module.def(
      "expose_memory",
      [](ServerCore& server, nb::handle memory, bool readable, bool writable, nb::handle lease) {
        const RegionAccess access = !writable  ? RegionAccess::read
                                    : readable ? RegionAccess::read_write
                                               : RegionAccess::write;
        return std::make_shared<ExposedMemory>(server.server(), memory, access, duration_of(lease).value_or(forever));
      },
      nb::arg("server"), nb::arg("memory"), nb::arg("readable"), nb::arg("writable"), nb::arg("lease").none());
}

}  // namespace hawser::python
