#pragma once

#include <memory>
#include <string_view>

#include "cluster/backend.h"
#include "cluster/load_pauses.h"
#include "hawser/detail/cluster_attempt.h"
#include "hawser/interceptor.h"
#include "hawser/task.h"
#include "hawser/timer.h"

namespace hawser::detail {

// The load that the servers of a cluster report, and the weights that follow from it. Reports come beside results, or
// the servers are asked for them. The backends are nodes of the cluster. Loop's thread only.
class ClusterLoad {
 public:
  using State = ClusterAttempt::State;

  // `cluster` owns this object.
  explicit ClusterLoad(State& cluster) : cluster_(cluster) {}
  ClusterLoad(const ClusterLoad&) = delete;
  ClusterLoad& operator=(const ClusterLoad&) = delete;

  // The options of the balancer have changed, or the cluster begins.
  void begin();
  // No further weights. The questions end with the scope of the cluster.
  void end() noexcept { weigher_.stop(); }
  // True if reports beside results are wanted.
  bool comes_with_results() const noexcept;
  // True if reports beside results are wanted, and the connections of the node do not read them.
  bool lacks_reader(const cluster::Backend& node) const noexcept;
  // An interceptor that reads the reports beside results.
  static std::shared_ptr<Interceptor<OutgoingCall>> make_reader(cluster::Backend& node);
  void on_report(cluster::Backend& node, std::string_view message) noexcept;
  // Begins to ask the server of a node for its load, if that is wanted and nobody does. The node is ready.
  void begin_questions(cluster::Backend& node);

 private:
  bool asks() const noexcept;
  // Asks the server of a node for its load, while the node is ready and gets calls.
  Task<void> ask(std::shared_ptr<cluster::Backend> backend);
  // False if the server cannot report its load.
  Task<bool> ask_once(std::shared_ptr<cluster::Backend> backend, Duration interval);
  // Gives the endpoints weights.
  void weigh();

  State& cluster_;
  MemberTimer<&ClusterLoad::weigh> weigher_{*this};
  Duration weigh_interval_{};  // Time between two runs of the weigher.
  cluster::LoadPauses pauses_;
};

}  // namespace hawser::detail
