#include "memory.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

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
  BorrowedMemory memory;
  bool writes = false;
  RemoteOptions options;

 private:
  void begin() override { run(std::static_pointer_cast<MemoryAccess>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<MemoryAccess> access);
  static Task<Result<void>> execute(MemoryAccess& access);
  nb::object value() override { return nb::none(); }
  void release() noexcept override { memory = {}; }
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
  const MutableBytes local = access.memory.mutable_bytes();
  std::optional<RegisteredBuffer> registered;
  if (remote.capabilities().one_sided) {
    Result<RegisteredBuffer> wrapped = RegisteredBuffer::wrap(client, local);
    if (!wrapped) co_return std::unexpected(std::move(wrapped.error()));
    registered = std::move(*wrapped);
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

std::shared_ptr<Work> start_access(const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub,
                                   const nb::object& future, nb::handle region, nb::handle memory, std::uint64_t offset,
                                   nb::handle timeout, bool writes) {
  const auto access = std::make_shared<MemoryAccess>(client, hub, future);
  access->region = region_of(region);
  access->offset = offset;
  access->writes = writes;
  access->options.timeout = duration_of(timeout).value_or(client->call_timeout());
  if (!access->memory.acquire(memory.ptr(), PyBUF_C_CONTIGUOUS | (writes ? 0 : PyBUF_WRITABLE))) {
    throw nb::python_error();
  }
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

void bind_memory(nb::module_& module) {
  nb::class_<ExposedMemory>(module, "ExposedMemory")
      .def("revoke", &ExposedMemory::revoke)
      .def_prop_ro("fields", [](const ExposedMemory& exposed) { return fields_of(exposed.handle()); });
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
