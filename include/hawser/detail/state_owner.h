#pragma once

namespace hawser::detail {

// Owns an object whose type a public header only declares. Each instantiation of std::unique_ptr in its place costs
// milliseconds in every file that includes the header: docs/decisions/0077. The pointer is valid until the object's
// destructor has returned, because what the object destroys may use its owner. libc++'s std::unique_ptr sets it to null
// before.
template <class T>
class StateOwner {
 public:
  explicit StateOwner(T* object) noexcept : object_(object) {}
  StateOwner(const StateOwner&) = delete;
  StateOwner& operator=(const StateOwner&) = delete;
  ~StateOwner() { delete object_; }

  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  // The caller owns the object from now on.
  T* release() noexcept {
    T* const object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  T* object_;  // Null after release().
};

}  // namespace hawser::detail
