#include "convoy/comm/two_level.hpp"

#include <algorithm>
#include <map>

namespace convoy::comm {

TwoLevelSum::TwoLevelSum(Communicator& c, int64_t count) {
  std::map<std::string, int> first, ranks;
  for (int r = 0; r < c.size(); ++r) {
    first.try_emplace(c.hosts()[static_cast<size_t>(r)], r);
    ++ranks[c.hosts()[static_cast<size_t>(r)]];
  }
  nodes_ = static_cast<int>(ranks.size());
  senders_ = c.size();
  for (const auto& [host, its] : ranks) senders_ = std::min(senders_, its);

  node_ = c.split(first[c.hosts()[static_cast<size_t>(c.rank())]]);
  const int local = node_->rank();
  between_ = c.split(std::min(local, senders_));
  if (local < senders_) {
    strip_ = strip_of(count, local, senders_);
  } else {
    between_.reset();
  }
  for (int r = 0; r < node_->size(); ++r) {
    if (r != local) others_.push_back(r);
  }
  node_sum_ = std::make_unique<SharedSum>(*node_, count);
}

Task TwoLevelSum::allreduce(int tag, Way way) {
  co_await node_sum_->barrier();
  if (between_) {
    const int local = node_sum_->rank();
    const std::span<float> strip = at(own(), strip_);
    if (!others_.empty()) node_sum_->sum(strip_, {&local, 1});
    co_await comm::allreduce(*between_, strip, tag, way);
    for (const int r : others_) {
      std::ranges::copy(strip, at(node_sum_->values(r), strip_).begin());
    }
  }
  co_await node_sum_->barrier();
}

Seconds TwoLevelSum::time(int nodes, int ranks_per_node, int64_t count, const Way& way,
                          const LinkSpeed& link, Seconds memory_per_byte) {
  LinkSpeed shared = link;
  shared.per_byte.value *= ranks_per_node;
  const int64_t strip = (count + ranks_per_node - 1) / ranks_per_node;
  return SharedSum::time(ranks_per_node, count, memory_per_byte) +
         predicted_time(way, Form::allreduce, nodes, strip, shared);
}

}  // namespace convoy::comm
