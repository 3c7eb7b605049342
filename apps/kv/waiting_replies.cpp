#include "kv/waiting_replies.h"

#include <charconv>

namespace hawser::kv {

void WaitingReply::write_to(protocol::resp::ReplyWriter& out) {
  if (!error.empty()) return out.raw(error);
  switch (route) {
    case CommandRoute::keys_sum:
    case CommandRoute::all_sum: return out.number(sum);
    case CommandRoute::keys_list:
      out.array(parts.size());
      // Each exists once: here, or in the queue.
      for (std::string& part : parts) out.raw(std::exchange(part, {}));
      return;
    default: break;
  }
  out.raw(text);
}

std::uint64_t WaitingReplies::add(WaitingReply reply, std::size_t bytes) {
  replies_.push_back(std::move(reply));
  hold(replies_.back(), bytes);
  return last_slot();
}

void WaitingReplies::expect_elements(std::uint64_t slot, std::size_t parts) {
  WaitingReply& reply = at(slot);
  reply.parts.resize(parts);
  hold(reply, parts * sizeof(std::string));
}

void WaitingReplies::add_part(std::uint64_t slot, std::uint32_t part, std::string_view reply) {
  WaitingReply& whole = at(slot);
  --whole.parts_left;
  if (reply.empty() || !whole.error.empty()) return;
  if (reply.starts_with('-')) return fail(slot, std::string(reply));
  const std::size_t line_end = reply.find('\n') + 1;
  std::int64_t number = 0;
  std::from_chars(reply.data() + 1, reply.data() + reply.size(), number);
  switch (whole.route) {
    case CommandRoute::keys_sum:
    case CommandRoute::all_sum: whole.sum += number; return;
    case CommandRoute::keys_list: reply.remove_prefix(line_end); break;
    default:
      if (!whole.text.empty()) return;  // The parts have the same reply.
      break;
  }
  const bool list = whole.route == CommandRoute::keys_list;
  if (list && whole.bytes + reply.size() > reply_bytes_max) {
    return fail(slot, "-" + std::string(values_too_long) + "\r\n");
  }
  hold(whole, reply.size());
  if (list) {
    whole.parts[part] = reply;
  } else {
    whole.text += reply;
  }
}

void WaitingReplies::fail(std::uint64_t slot, std::string error) {
  WaitingReply& reply = at(slot);
  reply.error = std::move(error);
  std::string().swap(reply.text);
  reply.pieces.reset();
  std::vector<std::string>().swap(reply.parts);
  bytes_ -= std::exchange(reply.bytes, 0);
}

WaitingReply WaitingReplies::take_first() {
  WaitingReply first = std::move(replies_.front());
  replies_.pop_front();
  ++first_slot_;
  bytes_ -= first.bytes;
  return first;
}

void WaitingReplies::clear() noexcept {
  first_slot_ += replies_.size();
  replies_.clear();
  bytes_ = 0;
}

}  // namespace hawser::kv
