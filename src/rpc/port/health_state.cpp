#include "rpc/port/health_state.h"

#include <exception>

#include "base/what_of.h"

namespace hawser::rpc {
namespace {

Result<void> outcome_of(const HealthReporter& reporter) {
  try {
    return reporter.check();
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "the check threw " + std::string(what_of(error)));
  } catch (...) {
    return fail(ErrorCode::internal, "the check threw what is not a std::exception");
  }
}

}  // namespace

void HealthState::notify(const std::string& service) {
  for (const Watcher* const watcher : watchers_) {
    // The whole server counts for each service. The watcher's loop runs as long as the watcher exists.
    if (service.empty() || watcher->service_ == service) {
      watcher->loop_.post([changed = watcher->changed_] { changed->set(); });
    }
  }
}

void HealthState::set(std::string service, bool serving) {
  const std::scoped_lock lock(mutex_);
  services_[service].set_serving = serving;
  for (auto& [name, one] : services_) one.seen_until = {};
  notify(service);
}

void HealthState::add(HealthReporter reporter) {
  const std::scoped_lock lock(mutex_);
  const std::string service = reporter.service;
  services_[service].reporters.push_back(std::make_shared<const HealthReporter>(std::move(reporter)));
  ++reporters_;
  for (auto& [name, one] : services_) one.seen_until = {};
  notify(service);
}

std::pair<const HealthState::Service*, const HealthState::Service*> HealthState::find(std::string_view service) const {
  const Service* const own =
      service.empty() || !services_.contains(service) ? nullptr : &services_.find(service)->second;
  return {&services_.find(std::string_view())->second, own};
}

HealthState::Reporters HealthState::reporters_of(const std::pair<const Service*, const Service*>& found) {
  Reporters all = found.first->reporters;
  if (found.second != nullptr) {
    all.insert(all.end(), found.second->reporters.begin(), found.second->reporters.end());
  }
  return all;
}

HealthStatus HealthState::status(std::string_view service, std::vector<Line>* lines) const {
  Reporters reporters;
  bool good = true;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = find(service);
    if (found.second == nullptr && !service.empty()) return HealthStatus::unknown;
    for (const auto& [name, one] : {std::pair(std::string_view("server"), found.first), {service, found.second}}) {
      if (one == nullptr || one->set_serving) continue;
      good = false;
      if (lines != nullptr) {
        lines->push_back({std::string(name), fail(ErrorCode::unavailable, "the program has set it to not serving")});
      }
    }
    reporters = reporters_of(found);
  }
  if (stopping()) return HealthStatus::not_serving;
  for (const auto& reporter : reporters) {
    Result<void> outcome = outcome_of(*reporter);
    good = good && outcome;
    if (lines != nullptr) lines->push_back({reporter->name, std::move(outcome)});
  }
  return good ? HealthStatus::serving : HealthStatus::not_serving;
}

HealthStatus HealthState::recent_status(std::string_view service, Time now) {
  const auto status_of = [](bool good) { return good ? HealthStatus::serving : HealthStatus::not_serving; };
  Reporters reporters;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = find(service);
    if (found.second == nullptr && !service.empty()) return HealthStatus::unknown;
    if (stopping()) return HealthStatus::not_serving;
    if (!found.first->set_serving || (found.second != nullptr && !found.second->set_serving)) return status_of(false);
    reporters = reporters_of(found);
    if (reporters.empty()) return status_of(true);
    Service& one = services_.find(service)->second;
    if (now < one.seen_until) return status_of(one.seen_good);
    // Until this look has ended, others see the result of the previous one.
    one.seen_until = now + watch_interval / 2;
  }
  bool good = true;
  for (const auto& reporter : reporters) good = outcome_of(*reporter).has_value() && good;
  const std::scoped_lock lock(mutex_);
  services_.find(service)->second.seen_good = good;
  return status_of(good);
}

bool HealthState::has_reporters() const {
  const std::scoped_lock lock(mutex_);
  return reporters_ != 0;
}

std::vector<std::string> HealthState::services() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, service] : services_) names.push_back(name);
  return names;
}

HealthState::Watcher::Watcher(std::shared_ptr<HealthState> state, std::string service, Loop& loop)
    : state_(std::move(state)), service_(std::move(service)), loop_(loop) {
  const std::scoped_lock lock(state_->mutex_);
  entry_ = state_->watchers_.insert(state_->watchers_.end(), this);
}

HealthState::Watcher::~Watcher() {
  const std::scoped_lock lock(state_->mutex_);
  state_->watchers_.erase(entry_);
}

}  // namespace hawser::rpc
