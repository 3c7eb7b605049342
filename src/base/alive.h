#pragma once

#include <memory>
#include <utility>

namespace hawser {

template <class Object>
class Alive;

// Answers whether an object still exists, for work that runs after a callback, an await, or a post. get() and the
// conversion to bool are for the thread that destroys the object. Any thread may copy, move, and destroy a Watch.
template <class Object>
class Watch {
 public:
  // Null after the object has been destroyed.
  Object* get() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return *object_ != nullptr; }

 private:
  friend class Alive<Object>;
  explicit Watch(std::shared_ptr<Object*> object) noexcept : object_(std::move(object)) {}

  std::shared_ptr<Object*> object_;  // Points to the address of the object, or to null.
};

// A member of an object. Its destruction ends what each Watch of the object sees, so that it is declared behind the
// members whose destructors may ask a Watch. Allocates once, in the constructor.
template <class Object>
class Alive {
 public:
  explicit Alive(Object& object) : object_(std::make_shared<Object*>(&object)) {}
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;
  ~Alive() { *object_ = nullptr; }

  // Any thread, while the object exists.
  Watch<Object> watch() const noexcept { return Watch<Object>(object_); }

 private:
  const std::shared_ptr<Object*> object_;
};

}  // namespace hawser
