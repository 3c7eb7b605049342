#include "transport/rdma/connection/queue_pair_set_up.h"

#include <new>
#include <utility>

namespace hawser::transport::rdma {
namespace {

std::unexpected<Error> no_memory_on_helper() { return fail(Error::of_transport(ErrorCode::overloaded, "no memory")); }

}  // namespace

std::unexpected<Error> QueuePairSetUp::too_much_work() {
  return fail(Error::of_transport(
      ErrorCode::overloaded,
      "too many RDMA handshakes wait for the kernel (the device's helper thread): try again later"));
}

bool QueuePairSetUp::make(Needs needs, Made made) {
  struct Job {
    Watch<QueuePairSetUp> watch;
    Made made;
    Result<std::unique_ptr<QueuePair>> pair = nullptr;
  };
  const auto job = std::make_shared<Job>(Job{.watch = alive_.watch(), .made = std::move(made)});
  return worker_.side_work().run(
      [worker = &worker_, job, gone = cancelled_, wanted = std::move(needs)]() -> SideWork::After {
        // A cancelled connection skips the work, because other work waits for the thread.
        if (gone->load(std::memory_order_relaxed)) return [job] {};
        try {
          // The helper thread also registers memory, so that the loop does not have to.
          static_cast<void>(worker->device().pool->make_room(wanted.memory, MemoryPool::Use::connection));
          job->pair = worker->make_pair(wanted.sends, wanted.receives);
        } catch (const std::bad_alloc&) {
          job->pair = no_memory_on_helper();
        }
        return [worker, job] {
          if (job->watch) return job->made(std::move(job->pair));
          worker->discard(job->pair ? std::move(*job->pair) : nullptr);
        };
      });
}

// Runs on any thread that side_work() uses. DrainingQueuePair::destroy_pair() withdraws the access.
Result<void> QueuePairSetUp::connect_pair(RdmaWorker& worker, QueuePair& pair, const QueuePairRoute& route) {
  try {
    auto done = pair.connect(route);
    if (done && route.access.remote_read) worker.device().access.add(pair);
    return done;
  } catch (const std::bad_alloc&) {
    return no_memory_on_helper();
  }
}

std::shared_ptr<const bool> QueuePairSetUp::connect(QueuePair& pair, const QueuePairRoute& route, Connected connected) {
  struct Job {
    Watch<QueuePairSetUp> watch;
    Connected connected;
    std::shared_ptr<bool> busy = std::make_shared<bool>(true);
    Result<void> outcome = {};
  };
  const auto job = std::make_shared<Job>(Job{.watch = alive_.watch(), .connected = std::move(connected)});
  const bool begun = worker_.side_work().run([worker = &worker_, to = &pair, way = route, job,
                                              gone = cancelled_]() -> SideWork::After {
    if (!gone->load(std::memory_order_relaxed)) {
      job->outcome = connect_pair(*worker, *to, way);
    } else {
      job->outcome =
          fail(Error::of_connection(ErrorCode::cancelled, "the pending RDMA connection ended before it was connected"));
    }
    return [job] {
      *job->busy = false;
      if (job->watch) job->connected(std::move(job->outcome));
    };
  });
  return begun ? job->busy : nullptr;
}

}  // namespace hawser::transport::rdma
